import java.util.Collections;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** The driver with transactions, as they are since 4.3. Argument: name server. */
public final class ModesTx {
    private ModesTx() {
    }

    public static void main(String[] arguments) throws Exception {
        new ModesDriver(arguments[0]) {
            private final Map<String, String> now = new ConcurrentHashMap<>();
            private final Map<String, String> checked = new ConcurrentHashMap<>();

            @Override
            Object answer(Command command) throws Exception {
                if (command.verb.equals("transaction")) {
                    byte[] body = bodies(command).get(0);
                    now.put(hex(body), command.text("decision"));
                    checked.put(hex(body), command.text("checked", "UNKNOWN"));
                    Message message = message(command, body);
                    return Collections.singletonMap("sent", Collections.singletonList(receipt(
                        producers.get(command.text("name")).sendMessageInTransaction(message, null))));
                }
                if (command.verb.equals("producer") && command.yes("transaction")) {
                    TransactionMQProducer producer = new TransactionMQProducer(command.text("group"));
                    producer.setTransactionListener(new TransactionListener() {
                        @Override
                        public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
                            return state(now.get(hex(message.getBody())));
                        }

                        @Override
                        public LocalTransactionState checkLocalTransaction(MessageExt message) {
                            return state(checked.get(hex(message.getBody())));
                        }
                    });
                    return producer(command, producer);
                }
                return super.answer(command);
            }
        }.run();
    }

    private static LocalTransactionState state(String name) {
        if ("COMMIT".equals(name)) {
            return LocalTransactionState.COMMIT_MESSAGE;
        }
        return "ROLLBACK".equals(name) ? LocalTransactionState.ROLLBACK_MESSAGE : LocalTransactionState.UNKNOW;
    }
}
