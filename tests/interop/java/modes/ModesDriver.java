import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** RocketMQ's clients from 4.2 on with their defaults and their unusual options; what all versions have, no more. */
class ModesDriver {
    private final String namesrv;
    protected final Map<String, DefaultMQProducer> producers = new ConcurrentHashMap<>();
    private final Map<String, DefaultMQPushConsumer> consumers = new ConcurrentHashMap<>();
    private final Map<String, List<Object>> inboxes = new ConcurrentHashMap<>();

    ModesDriver(String namesrv) {
        this.namesrv = namesrv;
    }

    void run() throws Exception {
        PrintStream answers = new PrintStream(System.out, true, "UTF-8");
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            Object answer;
            try {
                answer = answer(new Command(line));
            } catch (Throwable error) {
                error.printStackTrace();
                answer = Collections.singletonMap("failed", String.valueOf(error));
            }
            answers.println(Json.of(answer));
        }
        System.exit(0);
    }

    Object answer(Command command) throws Exception {
        switch (command.verb) {
            case "producer": return producer(command, new DefaultMQProducer(command.text("group")));
            case "send": return send(command);
            case "batch": return batch(command);
            case "push": return push(command);
            case "await": return await(command);
            case "pull": return pull(command);
            case "shutdown": return shutdown(command);
            default: throw new IllegalArgumentException("no verb " + command.verb);
        }
    }

    /** Calls a setter that some versions lack or give another type; "option.setX=value" of the command. */
    private static void options(Command command, Object target) throws Exception {
        for (Map.Entry<String, String> entry : command.under("option.").entrySet()) {
            Method setter = Arrays.stream(target.getClass().getMethods())
                .filter(each -> each.getName().equals(entry.getKey()) && each.getParameterCount() == 1)
                .findFirst().orElseThrow(() -> new NoSuchMethodException(entry.getKey()));
            Class<?> type = setter.getParameterTypes()[0];
            Object value = entry.getValue();
            if (type == boolean.class) {
                value = Boolean.valueOf(entry.getValue());
            } else if (type == int.class) {
                value = Integer.valueOf(entry.getValue());
            } else if (type.isEnum()) {
                value = Arrays.stream(type.getEnumConstants())
                    .filter(each -> each.toString().equals(entry.getValue())
                        || ((Enum<?>) each).name().equals(entry.getValue())).findFirst().get();
            }
            setter.invoke(target, value);
        }
    }

    protected Object producer(Command command, DefaultMQProducer producer) throws Exception {
        producer.setNamesrvAddr(namesrv);
        producer.setInstanceName(command.text("name"));
        producer.setSendMsgTimeout(10_000);
        options(command, producer);
        producer.start();
        producers.put(command.text("name"), producer);
        return Collections.emptyMap();
    }

    protected static List<byte[]> bodies(Command command) {
        List<byte[]> all = new ArrayList<>();
        for (String text : command.text("bodies").split(",")) {
            byte[] body = new byte[text.length() / 2];
            for (int i = 0; i < body.length; i++) {
                body[i] = (byte) Integer.parseInt(text.substring(2 * i, 2 * i + 2), 16);
            }
            all.add(body);
        }
        return all;
    }

    protected static String hex(byte[] bytes) {
        StringBuilder text = new StringBuilder();
        for (byte each : bytes) {
            text.append(String.format("%02x", each));
        }
        return text.toString();
    }

    protected static Message message(Command command, byte[] body) {
        Message message = new Message(command.text("topic"), command.text("tags", ""), command.text("keys", ""), body);
        for (Map.Entry<String, String> entry : command.under("property.").entrySet()) {
            message.putUserProperty(entry.getKey(), entry.getValue());
        }
        if (command.has("delayLevel")) {
            message.setDelayTimeLevel(command.number("delayLevel", 0));
        }
        return message;
    }

    protected static Map<String, Object> receipt(SendResult result) {
        Map<String, Object> row = new LinkedHashMap<>();
        row.put("id", result.getMsgId());
        row.put("queue", result.getMessageQueue().getQueueId());
        row.put("offset", result.getQueueOffset());
        row.put("status", result.getSendStatus().name());
        return row;
    }

    private static Map<String, Object> row(MessageExt message) {
        Map<String, Object> row = new LinkedHashMap<>();
        row.put("body", hex(message.getBody()));
        row.put("tags", message.getTags());
        row.put("keys", message.getKeys());
        row.put("properties", new HashMap<>(message.getProperties()));
        row.put("tries", message.getReconsumeTimes());
        row.put("queue", message.getQueueId());
        row.put("offset", message.getQueueOffset());
        return row;
    }

    private Object send(Command command) throws Exception {
        DefaultMQProducer producer = producers.get(command.text("name"));
        String mode = command.text("mode", "sync");
        List<byte[]> bodies = bodies(command);
        List<Object> sent = Collections.synchronizedList(new ArrayList<>());
        List<Throwable> failed = Collections.synchronizedList(new ArrayList<>());
        CountDownLatch answers = new CountDownLatch(mode.equals("async") ? bodies.size() : 0);
        for (byte[] body : bodies) {
            Message message = message(command, body);
            if (mode.equals("oneway")) {
                producer.sendOneway(message);
            } else if (mode.equals("async")) {
                producer.send(message, new SendCallback() {
                    @Override
                    public void onSuccess(SendResult result) {
                        sent.add(receipt(result));
                        answers.countDown();
                    }

                    @Override
                    public void onException(Throwable error) {
                        failed.add(error);
                        answers.countDown();
                    }
                });
            } else if (command.has("shard")) {
                sent.add(receipt(producer.send(message, (queues, each, key) ->
                    queues.get(Math.floorMod(key.hashCode(), queues.size())), command.text("shard"))));
            } else {
                sent.add(receipt(producer.send(message)));
            }
        }
        if (!answers.await(30, TimeUnit.SECONDS)) {
            throw new IllegalStateException(answers.getCount() + " callbacks did not come");
        }
        if (!failed.isEmpty()) {
            throw new IllegalStateException(failed.get(0));
        }
        return Collections.singletonMap("sent", sent);
    }

    private Object batch(Command command) throws Exception {
        List<Message> messages = new ArrayList<>();
        for (byte[] body : bodies(command)) {
            messages.add(message(command, body));
        }
        SendResult result = producers.get(command.text("name")).send(messages);
        return Collections.singletonMap("sent", Collections.singletonList(receipt(result)));
    }

    private Object push(Command command) throws Exception {
        String name = command.text("name");
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(command.text("group"));
        consumer.setNamesrvAddr(namesrv);
        consumer.setInstanceName(name);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setMaxReconsumeTimes(command.number("maxRetries", -1));
        options(command, consumer);
        if (command.has("sql")) {
            consumer.subscribe(command.text("topic"), MessageSelector.bySql(command.text("sql")));
        } else {
            consumer.subscribe(command.text("topic"), command.text("expression", "*"));
        }
        List<Object> rows = Collections.synchronizedList(new ArrayList<>());
        Map<String, Integer> tries = new ConcurrentHashMap<>();
        int later = command.number("later", 0);
        if (command.yes("orderly")) {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                for (MessageExt message : messages) {
                    rows.add(row(message));
                    if (tries.merge(hex(message.getBody()), 1, Integer::sum) <= later) {
                        return ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT;
                    }
                }
                return ConsumeOrderlyStatus.SUCCESS;
            });
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                for (MessageExt message : messages) {
                    rows.add(row(message));
                    if (tries.merge(hex(message.getBody()), 1, Integer::sum) <= later) {
                        return ConsumeConcurrentlyStatus.RECONSUME_LATER;
                    }
                }
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
        }
        inboxes.put(name, rows);
        consumer.start();
        consumers.put(name, consumer);
        return Collections.emptyMap();
    }

    private Object await(Command command) throws Exception {
        List<Object> rows = inboxes.get(command.text("name"));
        long giveUp = System.currentTimeMillis() + command.bigNumber("timeoutMs", 20_000);
        while (rows.size() < command.number("count", 1) && System.currentTimeMillis() < giveUp) {
            Thread.sleep(10);
        }
        synchronized (rows) {
            return Collections.singletonMap("messages", new ArrayList<>(rows));
        }
    }

    private Object pull(Command command) throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer(command.text("group"));
        consumer.setNamesrvAddr(namesrv);
        consumer.setInstanceName(command.text("name"));
        consumer.start();
        List<Object> rows = new ArrayList<>();
        try {
            for (MessageQueue queue : consumer.fetchSubscribeMessageQueues(command.text("topic"))) {
                long offset = consumer.minOffset(queue);
                while (offset < consumer.maxOffset(queue)) {
                    PullResult result = consumer.pull(queue, command.text("expression", "*"), offset, 32);
                    if (result.getMsgFoundList() != null) {
                        result.getMsgFoundList().forEach(message -> rows.add(row(message)));
                    }
                    offset = result.getNextBeginOffset();
                }
            }
        } finally {
            consumer.shutdown();
        }
        return Collections.singletonMap("messages", rows);
    }

    private Object shutdown(Command command) {
        DefaultMQProducer producer = producers.remove(command.text("name"));
        if (producer != null) {
            producer.shutdown();
        }
        DefaultMQPushConsumer consumer = consumers.remove(command.text("name"));
        if (consumer != null) {
            consumer.shutdown();
        }
        return Collections.emptyMap();
    }
}
