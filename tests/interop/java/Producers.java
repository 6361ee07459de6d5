import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.TransactionSendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** The producers of one JVM, by name. */
final class Producers {
    private final String namesrv;
    private final Map<String, DefaultMQProducer> producers = new ConcurrentHashMap<>();
    private final Map<String, Decisions> decisions = new ConcurrentHashMap<>();

    Producers(String namesrv) {
        this.namesrv = namesrv;
    }

    /** What the transaction listener answers, and what it was asked. */
    private static final class Decisions implements TransactionListener {
        private final Map<String, String> atOnce = new ConcurrentHashMap<>();
        private final Map<String, String> whenChecked = new ConcurrentHashMap<>();
        private final List<Map<String, Object>> checks = Collections.synchronizedList(new ArrayList<>());

        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
            return LocalTransactionState.valueOf(atOnce.get(body(message)));
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            checks.add(Rows.message(message));
            return LocalTransactionState.valueOf(whenChecked.getOrDefault(body(message), "UNKNOW"));
        }

        private static String body(Message message) {
            return new String(message.getBody(), StandardCharsets.UTF_8);
        }
    }

    /** Starts a producer: name, group, [transaction], [trace], [compress=TYPE], [compressOver=BYTES]. */
    Object start(Command command) throws Exception {
        String name = command.text("name");
        DefaultMQProducer producer;
        if (command.yes("transaction")) {
            TransactionMQProducer transactional = new TransactionMQProducer(command.text("group"), Access.hook());
            Decisions listener = new Decisions();
            transactional.setTransactionListener(listener);
            decisions.put(name, listener);
            producer = transactional;
        } else if (command.has("compress")) {
            producer = Versions.compressing(command.text("group"), command.text("compress"));
        } else {
            producer = Versions.producer(command.text("group"), command.yes("trace"));
        }
        producer.setNamesrvAddr(namesrv);
        producer.setInstanceName(name);
        producer.setSendMsgTimeout(command.number("timeoutMs", 10_000));
        producer.setCompressMsgBodyOverHowmuch(command.number("compressOver", 4096));
        producer.setVipChannelEnabled(command.yes("vip"));
        producer.start();
        producers.put(name, producer);
        return Collections.singletonMap("started", name);
    }

    void shutdown(String name) {
        DefaultMQProducer producer = producers.remove(name);
        if (producer != null) {
            producer.shutdown();
        }
    }

    DefaultMQProducer named(Command command) {
        return producers.get(command.text("name"));
    }

    private static Message message(Command command, int number) {
        byte[] body;
        if (command.has("bodyBytes")) {
            StringBuilder text = new StringBuilder();
            while (text.length() < command.number("bodyBytes", 0)) {
                text.append("line ").append(text.length()).append(" of the body\n");
            }
            body = text.substring(0, command.number("bodyBytes", 0)).getBytes(StandardCharsets.UTF_8);
        } else {
            String text = command.text("body") + (command.has("count") ? "-" + number : "");
            body = text.getBytes(StandardCharsets.UTF_8);
        }
        Message message = new Message(command.text("topic"), command.text("tags", ""), command.text("keys", ""), body);
        message.setFlag(command.number("flag", 0));
        for (Map.Entry<String, String> entry : command.under("property.").entrySet()) {
            message.putUserProperty(entry.getKey(), entry.getValue());
        }
        if (command.has("delayLevel")) {
            message.setDelayTimeLevel(command.number("delayLevel", 0));
        }
        Versions.delay(message, command);
        return message;
    }

    /** Sends count messages: mode sync, async, oneway, queue (queueId), hash (keys of a MessageQueueSelector). */
    Object send(Command command) throws Exception {
        DefaultMQProducer producer = named(command);
        String mode = command.text("mode", "sync");
        int count = command.number("count", 1);
        List<Object> receipts = Collections.synchronizedList(new ArrayList<>());
        CountDownLatch answers = new CountDownLatch(mode.equals("async") ? count : 0);
        for (int number = 0; number < count; number++) {
            Message message = message(command, number);
            switch (mode) {
                case "sync":
                    receipts.add(Rows.receipt(producer.send(message)));
                    break;
                case "async":
                    producer.send(message, new SendCallback() {
                        @Override
                        public void onSuccess(SendResult result) {
                            receipts.add(Rows.receipt(result));
                            answers.countDown();
                        }

                        @Override
                        public void onException(Throwable error) {
                            receipts.add(Collections.singletonMap("error", String.valueOf(error)));
                            answers.countDown();
                        }
                    });
                    break;
                case "oneway":
                    producer.sendOneway(message);
                    break;
                case "queue":
                    MessageQueue queue = producer.fetchPublishMessageQueues(message.getTopic()).stream()
                        .filter(each -> each.getQueueId() == command.number("queueId", 0)).findFirst().get();
                    receipts.add(Rows.receipt(producer.send(message, queue)));
                    break;
                case "hash":
                    receipts.add(Rows.receipt(producer.send(message, (queues, sent, key) ->
                        queues.get(Math.floorMod(key.hashCode(), queues.size())), "order-" + number % 5)));
                    break;
                default:
                    throw new IllegalArgumentException("mode " + mode);
            }
        }
        if (!answers.await(30, TimeUnit.SECONDS)) {
            throw new IllegalStateException(answers.getCount() + " callbacks did not come");
        }
        return Collections.singletonMap("receipts", receipts);
    }

    Object batch(Command command) throws Exception {
        List<Message> messages = new ArrayList<>();
        for (int number = 0; number < command.number("count", 1); number++) {
            messages.add(message(command, number));
        }
        return Collections.singletonMap("receipt", Rows.receipt(named(command).send(messages)));
    }

    /** One message in a transaction: decision now, checked = what a check is answered. */
    Object transaction(Command command) throws Exception {
        Decisions listener = decisions.get(command.text("name"));
        Message message = message(command, 0);
        listener.atOnce.put(Decisions.body(message), command.text("decision"));
        listener.whenChecked.put(Decisions.body(message), command.text("checked", "UNKNOW"));
        TransactionSendResult result = named(command).sendMessageInTransaction(message, null);
        Map<String, Object> row = Rows.receipt(result);
        row.put("state", result.getLocalTransactionState().name());
        return Collections.singletonMap("receipt", row);
    }

    Object checks(Command command) {
        List<Map<String, Object>> checks = decisions.get(command.text("name")).checks;
        synchronized (checks) {
            return Collections.singletonMap("checks", new ArrayList<>(checks));
        }
    }

    Object request(Command command) throws Exception {
        long timeoutMs = command.bigNumber("timeoutMs", 10_000);
        Message reply = Versions.request(named(command), message(command, 0), timeoutMs);
        Map<String, Object> row = new LinkedHashMap<>();
        row.put("body", new String(reply.getBody(), StandardCharsets.UTF_8));
        row.put("properties", reply.getProperties());
        return Collections.singletonMap("reply", row);
    }

    Object recall(Command command) throws Exception {
        return Collections.singletonMap("recalled", Versions.recall(named(command), command));
    }

    /** Asks by offsetMsgId, unique id or key: what QueryMessage and ViewMessage of the client find. */
    Object view(Command command) throws Exception {
        Object found = Rows.message(named(command).viewMessage(command.text("topic"), command.text("id")));
        return Collections.singletonMap("message", found);
    }

    Object query(Command command) throws Exception {
        List<Object> rows = new ArrayList<>();
        for (MessageExt message : named(command).queryMessage(
                command.text("topic"), command.text("key"), 32, 0, Long.MAX_VALUE).getMessageList()) {
            rows.add(Rows.message(message));
        }
        return Collections.singletonMap("messages", rows);
    }
}
