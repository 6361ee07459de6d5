"""The dashboard: pages for operators of a cluster, PocketMQ's or RocketMQ's, through the SDK alone.

``watch`` reads the cluster once for all viewers and keeps the last answers; ``show`` makes text, bodies and pictures
safe to look at; ``security`` guards every request and knows who sent it; ``live`` sends changes and the live tail as
server-sent events; ``pages`` has one module for each screen; ``application`` puts them together as an ASGI app.

A page of the watched state asks no broker. Nothing here knows the command line: what belongs to it (the doctor, the
scenarios) comes in through ``options``. Needs the extra ``pocketmq[dashboard]``: Starlette, Jinja2, uvicorn.
"""
