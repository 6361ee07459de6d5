import java.util.Collections;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.RequestCallback;
import org.apache.rocketmq.common.compression.CompressionType;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.protocol.heartbeat.MessageModel;

/** What 5.3 says otherwise than 4.9. */
final class Versions {
    private Versions() {
    }

    static DefaultMQProducer producer(String group, boolean trace) {
        DefaultMQProducer producer = new DefaultMQProducer(group, Access.hook());
        producer.setEnableTrace(trace);
        return producer;
    }

    static DefaultMQPushConsumer pushConsumer(String group, boolean trace) {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group, Access.hook());
        consumer.setEnableTrace(trace);
        return consumer;
    }

    static DefaultMQProducer compressing(String group, String type) {
        DefaultMQProducer producer = new DefaultMQProducer(group);
        producer.setCompressType(CompressionType.valueOf(type));
        return producer;
    }

    static void delay(Message message, Command command) {
        if (command.has("delayMs")) {
            message.setDelayTimeMs(command.bigNumber("delayMs", 0));
        }
        if (command.has("delaySec")) {
            message.setDelayTimeSec(command.bigNumber("delaySec", 0));
        }
        if (command.has("deliverAt")) {
            message.setDeliverTimeMs(command.bigNumber("deliverAt", 0));
        }
    }

    static String recall(DefaultMQProducer producer, Command command) throws Exception {
        return producer.recallMessage(command.text("topic"), command.text("handle"));
    }

    /**
     * 5.3.3's other forms of request() end with the answer to the send (DefaultMQProducerImpl's onSuccess counts the
     * latch down), also against RocketMQ's own broker: only the one with a selector and a callback waits for the reply.
     */
    static Message request(DefaultMQProducer producer, Message message, long timeoutMs) throws Exception {
        CompletableFuture<Message> answer = new CompletableFuture<>();
        producer.request(message, (queues, sent, key) -> queues.get(0), null, new RequestCallback() {
            @Override
            public void onSuccess(Message reply) {
                answer.complete(reply);
            }

            @Override
            public void onException(Throwable error) {
                answer.completeExceptionally(error);
            }
        }, timeoutMs);
        return answer.get();
    }

    static void broadcast(DefaultMQPushConsumer consumer) {
        consumer.setMessageModel(MessageModel.BROADCASTING);
    }

    static Set<MessageQueue> queuesOf(DefaultMQPushConsumer consumer) {
        return consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable().keySet();
    }

    static void createTopic(DefaultMQPullConsumer consumer, String topic, int queues) throws Exception {
        consumer.createTopic("TBW102", topic, queues, Collections.<String, String>emptyMap());
    }

    static void commit(DefaultLitePullConsumer consumer) {
        consumer.commit();
    }
}
