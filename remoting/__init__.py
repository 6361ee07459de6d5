"""The wire, from the bytes of a socket to a typed request, and back.

    frame, frame_budget      received bytes -> frames, within a limit on memory
    codec, codec_json, codec_binary, codec_msgpack, string_map
                             frame -> request or response with its typed header, and back
    codes, protocol/         the request codes; headers, bodies, permission and server of each
    fastjson                 RocketMQ's dialect of JSON
    connection, server, server_config, output, refused_requests, telemetry
                             the server's side: reads, hands over, writes answers
    short_frames, short_answers
                             where each number of a small native append and its answer stands; answers read in place
    http_server, tcp_info    pages for people and monitors; what the kernel counts of a connection
    channel, channel_pool, pending, loop
                             the client's side: connects, identifies the server, waits for answers

Nothing here knows a topic, a queue or a store: broker, name server and client carry the requests out.
"""
