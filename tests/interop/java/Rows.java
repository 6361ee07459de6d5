import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.zip.CRC32;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.MessageClientExt;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** What an answer says about messages, receipts and queues. */
final class Rows {
    private static final int SHOWN_BYTES = 512;

    private Rows() {
    }

    static Map<String, Object> message(MessageExt message) {
        Map<String, Object> row = new LinkedHashMap<>();
        row.put("topic", message.getTopic());
        row.put("broker", message.getBrokerName());
        row.put("queueId", message.getQueueId());
        row.put("queueOffset", message.getQueueOffset());
        row.put("commitLogOffset", message.getCommitLogOffset());
        row.put("msgId", message.getMsgId());
        if (message instanceof MessageClientExt) {
            row.put("offsetMsgId", ((MessageClientExt) message).getOffsetMsgId());
        }
        row.put("tags", message.getTags());
        row.put("keys", message.getKeys());
        row.put("flag", message.getFlag());
        row.put("sysFlag", message.getSysFlag());
        row.put("reconsumeTimes", message.getReconsumeTimes());
        row.put("bornTimestamp", message.getBornTimestamp());
        row.put("storeTimestamp", message.getStoreTimestamp());
        row.put("bornHost", String.valueOf(message.getBornHost()));
        row.put("storeHost", String.valueOf(message.getStoreHost()));
        row.put("properties", message.getProperties());
        byte[] body = message.getBody() == null ? new byte[0] : message.getBody();
        row.put("bodyBytes", body.length);
        CRC32 crc = new CRC32();
        crc.update(body);
        row.put("bodyCrc", crc.getValue());
        if (body.length <= SHOWN_BYTES) {
            row.put("body", new String(body, StandardCharsets.UTF_8));
        }
        row.put("seenAt", System.currentTimeMillis());
        row.put("thread", Thread.currentThread().getName());
        return row;
    }

    static Map<String, Object> receipt(SendResult result) {
        Map<String, Object> row = new LinkedHashMap<>();
        row.put("status", result.getSendStatus().name());
        row.put("msgId", result.getMsgId());
        row.put("offsetMsgId", result.getOffsetMsgId());
        row.put("broker", result.getMessageQueue().getBrokerName());
        row.put("topic", result.getMessageQueue().getTopic());
        row.put("queueId", result.getMessageQueue().getQueueId());
        row.put("queueOffset", result.getQueueOffset());
        row.put("transactionId", result.getTransactionId());
        row.put("region", result.getRegionId());
        row.put("traceOn", result.isTraceOn());
        return row;
    }

    static Map<String, Object> queue(MessageQueue queue) {
        Map<String, Object> row = new LinkedHashMap<>();
        row.put("topic", queue.getTopic());
        row.put("broker", queue.getBrokerName());
        row.put("queueId", queue.getQueueId());
        return row;
    }
}
