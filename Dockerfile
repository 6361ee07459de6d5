# PocketMQ in a container: docs/deployment.md. Debian's Python; nothing of the build stays but the environment.
#
#   docker build -t pocketmq .
#   docker run -v pocketmq:/data -p 9876:9876 -p 10911:10911 pocketmq standalone --host 0.0.0.0 --open --advertise HOST
ARG BASE=debian:trixie-slim

FROM ${BASE} AS build
RUN apt-get update \
 && apt-get install --yes --no-install-recommends python3 python3-venv \
 && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY . .
# Bytecode is compiled here: the user of the image cannot write it. pip and the tests of NumPy are not needed to serve.
RUN python3 -m venv /opt/pocketmq \
 && /opt/pocketmq/bin/pip install --no-cache-dir '.[dashboard,tls]' \
 && /opt/pocketmq/bin/pip uninstall --yes pip \
 && find /opt/pocketmq -type d -name tests -path '*/numpy/*' -prune -exec rm -rf {} +

FROM ${BASE}
RUN apt-get update \
 && apt-get install --yes --no-install-recommends python3 \
 && rm -rf /var/lib/apt/lists/* \
 && groupadd --system --gid 10911 pocketmq \
 && useradd --system --uid 10911 --gid 10911 --home-dir /data --no-create-home --shell /usr/sbin/nologin pocketmq \
 && install --directory --owner=10911 --group=10911 --mode=0750 /data
COPY --from=build /opt/pocketmq /opt/pocketmq
ENV PATH=/opt/pocketmq/bin:/usr/local/bin:/usr/bin:/bin PYTHONUNBUFFERED=1
USER 10911:10911
WORKDIR /data
VOLUME /data
# Name server, clients, slaves, metrics and health, dashboard.
EXPOSE 9876 10911 10912 5557 8088
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 \
  CMD ["python3", "-m", "pocketmq.cli.daemon.health_check"]
ENTRYPOINT ["pocketmq"]
# Does not start as it is: say who may connect, with the settings of "pocketmq init --secure" or with --open.
CMD ["standalone", "--host", "0.0.0.0", "--data-dir", "/data"]
