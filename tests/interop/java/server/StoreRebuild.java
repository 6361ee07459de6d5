import java.lang.reflect.Constructor;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.MessageArrivingListener;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/**
 * Opens a store directory with RocketMQ's own store, without a broker around it, and closes it: what is missing in
 * consume queues and index is built from the log meanwhile.
 *
 * <p>Arguments: directory, commit-log file bytes, consume-queue file bytes, index slots, index entries. Prints one JSON
 * line: the bounds of the log.
 */
public class StoreRebuild {
    public static void main(String[] arguments) throws Exception {
        MessageStoreConfig config = new MessageStoreConfig();
        config.setStorePathRootDir(arguments[0]);
        config.setStorePathCommitLog(arguments[0] + "/commitlog");
        config.setMappedFileSizeCommitLog(Integer.parseInt(arguments[1]));
        config.setMappedFileSizeConsumeQueue(Integer.parseInt(arguments[2]));
        config.setMaxHashSlotNum(Integer.parseInt(arguments[3]));
        config.setMaxIndexNum(Integer.parseInt(arguments[4]));
        config.setHaListenPort(0);
        DefaultMessageStore store = open(config);
        if (!store.load()) {
            throw new IllegalStateException("load says false");
        }
        store.start();
        long deadline = System.currentTimeMillis() + 30_000;
        while (store.dispatchBehindBytes() > 0) {
            if (System.currentTimeMillis() > deadline) {
                throw new IllegalStateException(store.dispatchBehindBytes() + " bytes are not dispatched");
            }
            Thread.sleep(10);
        }
        long end = store.getMaxPhyOffset();
        store.shutdown();
        System.out.println("{\"end\":" + end + "}");
        System.out.flush();
        System.exit(0);
    }

    private static DefaultMessageStore open(MessageStoreConfig config) throws Exception {
        BrokerStatsManager statistics = new BrokerStatsManager("rebuild", false);
        MessageArrivingListener nobody = (topic, queue, offset, tags, time, bits, properties) -> { };
        for (Constructor<?> each : DefaultMessageStore.class.getConstructors()) {
            int count = each.getParameterCount(); // RocketMQ 5 also wants the table of topics
            if (count == 4) {
                return (DefaultMessageStore) each.newInstance(config, statistics, nobody, new BrokerConfig());
            }
            if (count == 5) {
                return (DefaultMessageStore)
                    each.newInstance(config, statistics, nobody, new BrokerConfig(), new ConcurrentHashMap<>());
            }
        }
        throw new IllegalStateException("no constructor that is known");
    }
}
