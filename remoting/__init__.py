"""The wire, from the bytes of a socket to a typed request, and back.

    frame, frame_budget      received bytes -> frames, within a limit on memory
    codec, codec_json, codec_binary, codec_msgpack, string_map
                             frame -> request or response with its typed header, and back
    codes, protocol/         the numbers, and what each of them carries, needs and is served by
    fastjson                 RocketMQ's dialect of JSON
    connection, server, server_config, output, refused_requests, telemetry
                             the side that serves: reads, hands over, writes answers
    channel, channel_pool, pending, loop
                             the side that asks: connects, finds out whom it talks to, waits for answers

Nothing here knows a topic, a queue or a store: what a request does belongs to broker, name server and client.
"""
