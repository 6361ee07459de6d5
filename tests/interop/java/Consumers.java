import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** The consumers of one JVM, by name, and what they were handed. */
final class Consumers {
    private final String namesrv;
    private final Producers producers;
    private final Map<String, DefaultMQPushConsumer> pushing = new ConcurrentHashMap<>();
    private final Map<String, DefaultMQPullConsumer> pulling = new ConcurrentHashMap<>();
    private final Map<String, DefaultLitePullConsumer> lite = new ConcurrentHashMap<>();
    private final Map<String, List<Map<String, Object>>> received = new ConcurrentHashMap<>();

    Consumers(String namesrv, Producers producers) {
        this.namesrv = namesrv;
        this.producers = producers;
    }

    /**
     * Starts a push consumer: name, group, topic, [expression], [sql], [orderly], [broadcast], [trace], [maxRetries],
     * [laterTimes: how often a message is sent back before it is done], [delayLevel: of that], [reply: with producer],
     * [pop: let the broker share the queues, and say that they are popped; 5.3].
     */
    Object push(Command command) throws Exception {
        String name = command.text("name");
        DefaultMQPushConsumer consumer = Versions.pushConsumer(command.text("group"), command.yes("trace"));
        consumer.setNamesrvAddr(namesrv);
        consumer.setInstanceName(name);
        consumer.setVipChannelEnabled(false);
        consumer.setConsumeFromWhere(ConsumeFromWhere.valueOf(command.text("from", "CONSUME_FROM_FIRST_OFFSET")));
        consumer.setMaxReconsumeTimes(command.number("maxRetries", -1));
        consumer.setConsumeMessageBatchMaxSize(command.number("batch", 1));
        if (command.has("suspendMs")) {
            consumer.setSuspendCurrentQueueTimeMillis(command.number("suspendMs", 1000));
        }
        if (command.yes("broadcast")) {
            Versions.broadcast(consumer);
        }
        if (command.yes("pop")) {
            DefaultMQPushConsumer.class.getMethod("setClientRebalance", boolean.class).invoke(consumer, false);
        }
        if (command.has("sql")) {
            consumer.subscribe(command.text("topic"), MessageSelector.bySql(command.text("sql")));
        } else {
            consumer.subscribe(command.text("topic"), command.text("expression", "*"));
        }
        List<Map<String, Object>> rows = Collections.synchronizedList(new ArrayList<>());
        received.put(name, rows);
        int laterTimes = command.number("laterTimes", 0);
        Map<String, Integer> tries = new ConcurrentHashMap<>();
        if (command.yes("orderly")) {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                for (MessageExt message : messages) {
                    rows.add(Rows.message(message));
                    if (tries.merge(message.getMsgId(), 1, Integer::sum) <= laterTimes) {
                        return ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT;
                    }
                }
                return ConsumeOrderlyStatus.SUCCESS;
            });
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                context.setDelayLevelWhenNextConsume(command.number("delayLevel", 0));
                for (MessageExt message : messages) {
                    rows.add(Rows.message(message));
                    if (message.getReconsumeTimes() < laterTimes) {
                        return ConsumeConcurrentlyStatus.RECONSUME_LATER;
                    }
                    if (command.has("replyWith")) {
                        reply(command, message);
                    }
                }
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
        }
        consumer.start();
        pushing.put(name, consumer);
        return Collections.singletonMap("started", name);
    }

    private void reply(Command command, MessageExt message) {
        try {
            DefaultMQProducer producer = producers.named(new Command("reply name=" + command.text("replyWith")));
            String text = "reply to " + new String(message.getBody(), StandardCharsets.UTF_8);
            Message reply = MessageUtil.createReplyMessage(message, text.getBytes(StandardCharsets.UTF_8));
            producer.send(reply, 10_000);
        } catch (Exception error) {
            throw new IllegalStateException(error);
        }
    }

    /** Waits until at least count messages came, at most timeoutMs, and returns all that came. */
    Object await(Command command) throws Exception {
        List<Map<String, Object>> rows = received.get(command.text("name"));
        long giveUp = System.currentTimeMillis() + command.bigNumber("timeoutMs", 20_000);
        while (rows.size() < command.number("count", 1) && System.currentTimeMillis() < giveUp) {
            Thread.sleep(10);
        }
        synchronized (rows) {
            return Collections.singletonMap("messages", new ArrayList<>(rows));
        }
    }

    /** The queues that a push consumer has now. */
    Object assigned(Command command) {
        List<Object> rows = new ArrayList<>();
        for (MessageQueue queue : Versions.queuesOf(pushing.get(command.text("name")))) {
            rows.add(Rows.queue(queue));
        }
        return Collections.singletonMap("queues", rows);
    }

    /** A pull consumer; with a topic its first heartbeat tells it the broker's version, which SQL filters need. */
    Object pullStart(Command command) throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer(command.text("group"), Access.hook());
        consumer.setNamesrvAddr(namesrv);
        consumer.setInstanceName(command.text("name"));
        consumer.setVipChannelEnabled(false);
        if (command.has("topic")) {
            consumer.setRegisterTopics(Collections.singleton(command.text("topic")));
        }
        consumer.start();
        pulling.put(command.text("name"), consumer);
        return Collections.singletonMap("started", command.text("name"));
    }

    private static MessageQueue queue(Command command, Collection<MessageQueue> queues) {
        return queues.stream().filter(each -> each.getQueueId() == command.number("queueId", 0)).findFirst().get();
    }

    /** One pull of one queue: offset, max, [expression], [sql], [block]. */
    Object pull(Command command) throws Exception {
        DefaultMQPullConsumer consumer = pulling.get(command.text("name"));
        MessageQueue queue = queue(command, consumer.fetchSubscribeMessageQueues(command.text("topic")));
        String expression = command.text("expression", "*");
        long offset = command.bigNumber("offset", 0);
        int most = command.number("max", 32);
        PullResult result;
        if (command.has("sql")) {
            result = consumer.pull(queue, MessageSelector.bySql(command.text("sql")), offset, most);
        } else if (command.yes("block")) {
            result = consumer.pullBlockIfNotFound(queue, expression, offset, most);
        } else {
            result = consumer.pull(queue, expression, offset, most);
        }
        Map<String, Object> row = new LinkedHashMap<>();
        row.put("status", result.getPullStatus().name());
        row.put("next", result.getNextBeginOffset());
        row.put("min", result.getMinOffset());
        row.put("max", result.getMaxOffset());
        List<Object> messages = new ArrayList<>();
        if (result.getMsgFoundList() != null) {
            for (MessageExt message : result.getMsgFoundList()) {
                messages.add(Rows.message(message));
            }
        }
        row.put("messages", messages);
        return row;
    }

    /** What a queue's offsets are, and with commit=N sets the group's. */
    Object offsets(Command command) throws Exception {
        DefaultMQPullConsumer consumer = pulling.get(command.text("name"));
        MessageQueue queue = queue(command, consumer.fetchSubscribeMessageQueues(command.text("topic")));
        if (command.has("commit")) {
            consumer.updateConsumeOffset(queue, command.bigNumber("commit", 0));
            consumer.getDefaultMQPullConsumerImpl().getOffsetStore().persist(queue);
        }
        Map<String, Object> row = new LinkedHashMap<>();
        row.put("min", consumer.minOffset(queue));
        row.put("max", consumer.maxOffset(queue));
        row.put("earliestStoreTime", consumer.earliestMsgStoreTime(queue));
        row.put("atTime", consumer.searchOffset(queue, command.bigNumber("time", 0)));
        row.put("committed", consumer.fetchConsumeOffset(queue, true));
        return row;
    }

    Object createTopic(Command command) throws Exception {
        DefaultMQPullConsumer consumer = pulling.get(command.text("name"));
        Versions.createTopic(consumer, command.text("topic"), command.number("queues", 4));
        return Collections.singletonMap("created", command.text("topic"));
    }

    /** A lite pull consumer that subscribes, or is assigned every queue of a topic. */
    Object liteStart(Command command) throws Exception {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(command.text("group"), Access.hook());
        consumer.setNamesrvAddr(namesrv);
        consumer.setInstanceName(command.text("name"));
        consumer.setVipChannelEnabled(false);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setAutoCommit(false);
        if (!command.yes("assign")) {
            if (command.has("sql")) {
                consumer.subscribe(command.text("topic"), MessageSelector.bySql(command.text("sql")));
            } else {
                consumer.subscribe(command.text("topic"), command.text("expression", "*"));
            }
        }
        consumer.start();
        if (command.yes("assign")) {
            consumer.assign(consumer.fetchMessageQueues(command.text("topic")));
        }
        lite.put(command.text("name"), consumer);
        return Collections.singletonMap("started", command.text("name"));
    }

    /** Polls until count messages came or timeoutMs are over; commits them with commit=true. */
    Object litePoll(Command command) throws Exception {
        DefaultLitePullConsumer consumer = lite.get(command.text("name"));
        List<Object> rows = new ArrayList<>();
        long giveUp = System.currentTimeMillis() + command.bigNumber("timeoutMs", 20_000);
        while (rows.size() < command.number("count", 1) && System.currentTimeMillis() < giveUp) {
            for (MessageExt message : consumer.poll(200)) {
                rows.add(Rows.message(message));
            }
        }
        if (command.yes("commit")) {
            Versions.commit(consumer);
        }
        return Collections.singletonMap("messages", rows);
    }

    Object liteSeek(Command command) throws Exception {
        DefaultLitePullConsumer consumer = lite.get(command.text("name"));
        MessageQueue queue = queue(command, consumer.fetchMessageQueues(command.text("topic")));
        if (command.text("offset").equals("begin")) {
            consumer.seekToBegin(queue);
        } else if (command.text("offset").equals("end")) {
            consumer.seekToEnd(queue);
        } else {
            consumer.seek(queue, command.bigNumber("offset", 0));
        }
        return Collections.singletonMap("sought", Rows.queue(queue));
    }

    Object liteCommitted(Command command) throws Exception {
        DefaultLitePullConsumer consumer = lite.get(command.text("name"));
        Map<String, Object> row = new LinkedHashMap<>();
        for (MessageQueue queue : consumer.fetchMessageQueues(command.text("topic"))) {
            row.put(String.valueOf(queue.getQueueId()), consumer.committed(queue));
        }
        return Collections.singletonMap("committed", row);
    }

    void shutdown(String name) {
        if (pushing.containsKey(name)) {
            pushing.remove(name).shutdown();
        } else if (pulling.containsKey(name)) {
            pulling.remove(name).shutdown();
        } else if (lite.containsKey(name)) {
            lite.remove(name).shutdown();
        }
    }
}
