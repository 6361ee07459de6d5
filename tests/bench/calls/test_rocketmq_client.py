"""The frames are those of RocketMQ's Java client, as the broker's codec reads them."""

import pytest

from bench.calls.rocketmq_client import FORMS, answer_code, send_frame
from pocketmq.remoting.codec import decode_request, encode_response
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.frame import BINARY, JSON, FrameDecoder, new_scratch
from pocketmq.remoting.frame_budget import FrameBudget
from pocketmq.remoting.protocol.send import SendMessageV2RequestHeader


@pytest.mark.parametrize("form", FORMS)
def test_a_frame_is_a_send_message_v2(form: str) -> None:
    """Code, opaque, every field and the body."""
    frame = send_frame(FORMS[form], "Topic", 6, b"body")
    [decoded] = FrameDecoder(new_scratch(), FrameBudget()).feed(frame)
    request = decode_request(decoded)
    assert (request.code, request.opaque, bytes(request.body)) == (RequestCode.SEND_MESSAGE_V2, 6, b"body")
    header = request.header
    assert isinstance(header, SendMessageV2RequestHeader)
    assert (header.producer_group, header.topic, header.queue_id, header.batch) == ("calls", "Topic", 2, False)
    assert header.properties == f"UNIQ_KEY\x01{6:032X}\x02WAIT\x01true\x02"


@pytest.mark.parametrize("form", [JSON, BINARY])
def test_the_code_of_an_answer_is_read_in_both_forms(form: int) -> None:
    """What the broker's codec writes."""
    code = RequestCode.SEND_MESSAGE_V2
    answer = b"".join(encode_response(14, 1, code, remark="full", serialize_type=form))
    assert answer_code(answer[4:]) == 14
