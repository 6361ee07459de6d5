"""The wire: frames, header codecs, request and response codes, the server and the client channel. Knows no topic."""
