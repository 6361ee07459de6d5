import java.util.Set;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.AllocateMessageQueueStrategy;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.common.protocol.heartbeat.MessageModel;

/** What 4.9 says otherwise than 5.3. */
final class Versions {
    private Versions() {
    }

    static DefaultMQProducer producer(String group, boolean trace) {
        return new DefaultMQProducer(group, Access.hook(), trace, null);
    }

    static DefaultMQPushConsumer pushConsumer(String group, boolean trace) {
        AllocateMessageQueueStrategy averagely = new AllocateMessageQueueAveragely();
        return new DefaultMQPushConsumer(group, Access.hook(), averagely, trace, null);
    }

    static DefaultMQProducer compressing(String group, String type) {
        System.setProperty(MixAll.MESSAGE_COMPRESS_TYPE, type);
        return new DefaultMQProducer(group);
    }

    static void delay(Message message, Command command) {
        if (command.has("delayMs") || command.has("delaySec") || command.has("deliverAt")) {
            throw new UnsupportedOperationException("4.9 has delay levels only");
        }
    }

    static String recall(DefaultMQProducer producer, Command command) {
        throw new UnsupportedOperationException("4.9 has no recall");
    }

    static Message request(DefaultMQProducer producer, Message message, long timeoutMs) throws Exception {
        return producer.request(message, timeoutMs);
    }

    static void broadcast(DefaultMQPushConsumer consumer) {
        consumer.setMessageModel(MessageModel.BROADCASTING);
    }

    static Set<MessageQueue> queuesOf(DefaultMQPushConsumer consumer) {
        return consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable().keySet();
    }

    static void createTopic(DefaultMQPullConsumer consumer, String topic, int queues) throws Exception {
        consumer.createTopic("TBW102", topic, queues);
    }

    static void commit(DefaultLitePullConsumer consumer) {
        consumer.commitSync();
    }
}
