"""One command, ``pocketmq``.

    main        turns errors into exit codes, starts a server without the other commands
    app         puts the subcommands together
    daemon      standalone, broker, namesrv, cluster: the servers
    messages    produce, consume, request, message, trace, dlq, transaction, retry-store
    admin       topic, group, lock, ha
    log         a store directory without a broker
    doctor      why a broker refuses sends, and how fast its disk is
    scenario    the incidents of production in real processes
    bench       how fast this machine is

The other modules are shared: options, output, exit codes, times, message formats. Commands use the SDK
(``client.admin``); heavy imports happen inside a command, so that ``--help`` stays fast.
"""
