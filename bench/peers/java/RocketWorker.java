import com.alibaba.fastjson2.JSONArray;
import com.alibaba.fastjson2.JSONObject;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashSet;
import java.util.List;
import java.util.Random;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.Consumer;
import org.HdrHistogram.ConcurrentHistogram;
import org.HdrHistogram.Histogram;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * The client process of RocketMQ: the jobs of bench/comparison/worker.py on RocketMQ's own Java client.
 *
 * A closed loop of up to 64 messages is the better of two: that many threads that each wait for their answer, as
 * RocketMQ's benchmark producer does, and asynchronous sends under a semaphore. Above 64 it is the second. Batches are
 * collections.
 */
public final class RocketWorker {
    private static final long LOWEST_NS = 1_000L;
    private static final long HIGHEST_NS = 60_000_000_000L;
    private static final int THREADS_MAX = 64;
    private static final int PULL_BATCH = 1024;
    private static final int OPEN_IN_FLIGHT_MAX = 20_000;

    private static List<DefaultMQProducer> kept = new ArrayList<>();
    private static String keptKey = "";

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err);  // the client's libraries print where they like
        answers.println("{\"ready\": \"rocketmq\"}");
        BufferedReader jobs = new BufferedReader(new InputStreamReader(System.in));
        for (String text = jobs.readLine(); text != null; text = jobs.readLine()) {
            JSONObject job = JSONObject.parseObject(text);
            if ("quit".equals(job.getString("op"))) {
                break;
            }
            JSONObject answer;
            try {
                answer = run(job);
            } catch (Throwable error) {
                answer = new JSONObject();
                answer.put("error", error.getClass().getSimpleName() + ": " + error.getMessage());
            }
            answers.println(answer.toJSONString());
            answers.flush();
        }
        System.exit(0);
    }

    private static JSONObject run(JSONObject job) throws Exception {
        String op = job.getString("op");
        if ("create".equals(op)) {
            return create(job);
        }
        if ("delete".equals(op)) {
            return delete(job);
        }
        if ("first".equals(op)) {
            return first(job);
        }
        int connections = job.getIntValue("connections", 1);
        String key = job.getJSONObject("target").toJSONString() + connections;
        boolean keep = job.getBooleanValue("keep");
        if (!keep || !key.equals(keptKey)) {
            close(kept);
            kept = new ArrayList<>();
            for (int number = 0; number < connections; number++) {
                DefaultMQProducer producer = producer(job.getJSONObject("target"));
                kept.add(producer);
                if (!"read".equals(op)) {  // it connects only then
                    byte[] body = body(job.getIntValue("size_bytes"));
                    producer.send(new Message(job.getJSONArray("topics").getString(0), body));
                }
            }
            keptKey = key;
        }
        try {
            long cpu = cpuNs();
            JSONObject answer;
            if ("closed".equals(op)) {
                answer = closed(kept, job);
            } else if ("open".equals(op)) {
                answer = open(kept, job);
            } else if ("read".equals(op)) {
                answer = read(job);
            } else if ("drain".equals(op)) {
                answer = drain(kept, job);
            } else {
                throw new IllegalArgumentException("no such job: " + op);
            }
            answer.putIfAbsent("client_cpu_s", (cpuNs() - cpu) / 1e9);
            return answer;
        } finally {
            if (!keep) {
                close(kept);
                kept = new ArrayList<>();
                keptKey = "";
            }
        }
    }

    private static long cpuNs() {
        return ((com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean())
            .getProcessCpuTime();
    }

    private static DefaultMQProducer producer(JSONObject target) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("bench");
        producer.setNamesrvAddr(target.getString("namesrv"));
        producer.setInstanceName(UUID.randomUUID().toString());
        producer.setCompressMsgBodyOverHowmuch(Integer.MAX_VALUE);
        producer.setSendMsgTimeout(10_000);
        producer.start();
        return producer;
    }

    private static void close(List<DefaultMQProducer> producers) {
        for (DefaultMQProducer producer : producers) {
            producer.shutdown();
        }
    }

    private static DefaultMQAdminExt admin(JSONObject target) throws Exception {
        DefaultMQAdminExt admin = new DefaultMQAdminExt(120_000);
        admin.setNamesrvAddr(target.getString("namesrv"));
        admin.setInstanceName(UUID.randomUUID().toString());
        admin.start();
        return admin;
    }

    private static JSONObject create(JSONObject job) throws Exception {
        JSONObject target = job.getJSONObject("target");
        int queues = job.getIntValue("queues", 4);
        DefaultMQAdminExt admin = admin(target);
        try {
            List<TopicConfig> configs = new ArrayList<>();
            for (Object topic : job.getJSONArray("topics")) {
                configs.add(new TopicConfig((String) topic, queues, queues));
                if (configs.size() == 500) {
                    admin.createAndUpdateTopicConfigList(target.getString("broker"), configs);
                    configs.clear();
                }
            }
            if (!configs.isEmpty()) {
                admin.createAndUpdateTopicConfigList(target.getString("broker"), configs);
            }
            JSONArray topics = job.getJSONArray("topics");
            String last = topics.getString(topics.size() - 1);
            for (int attempt = 0; attempt < 200; attempt++) {
                try {
                    admin.examineTopicRouteInfo(last);
                    break;
                } catch (Exception error) {
                    Thread.sleep(50);
                }
            }
        } finally {
            admin.shutdown();
        }
        return new JSONObject();
    }

    private static JSONObject delete(JSONObject job) throws Exception {
        JSONObject target = job.getJSONObject("target");
        DefaultMQAdminExt admin = admin(target);
        try {
            Set<String> brokers = new HashSet<>();
            brokers.add(target.getString("broker"));
            Set<String> servers = new HashSet<>();
            servers.add(target.getString("namesrv"));
            for (Object topic : job.getJSONArray("topics")) {
                admin.deleteTopicInBroker(brokers, (String) topic);
                admin.deleteTopicInNameServer(servers, (String) topic);
            }
        } finally {
            admin.shutdown();
        }
        return new JSONObject();
    }

    private static JSONObject first(JSONObject job) throws Exception {
        long begin = System.nanoTime();
        double seconds = job.getDoubleValue("seconds") > 0 ? job.getDoubleValue("seconds") : 120;
        String topic = job.getJSONArray("topics").getString(0);
        DefaultMQProducer producer = producer(job.getJSONObject("target"));
        producer.setSendMsgTimeout(1000);
        producer.setRetryTimesWhenSendFailed(0);
        if (job.getBooleanValue("create")) {
            producer.setCreateTopicKey("TBW102");
        }
        try {
            while (true) {
                try {
                    producer.send(new Message(topic, body(job.getIntValue("size_bytes", 1024))));
                    JSONObject answer = new JSONObject();
                    answer.put("count", 1);
                    answer.put("elapsed_s", (System.nanoTime() - begin) / 1e9);
                    return answer;
                } catch (Exception error) {
                    if (System.nanoTime() - begin > seconds * 1e9) {
                        throw error;
                    }
                    Thread.sleep(20);
                }
            }
        } finally {
            producer.shutdown();
        }
    }

    private static byte[] body(int size) {
        byte[] body = new byte[size];
        new Random().nextBytes(body);
        return body;
    }

    /** What a load did; all methods may be called from any thread. */
    private static final class Measured {
        final ConcurrentHistogram latencies = new ConcurrentHistogram(LOWEST_NS, HIGHEST_NS, 3);
        final AtomicLong answered = new AtomicLong();
        final AtomicLong failed = new AtomicLong();
        final AtomicReference<String> firstError = new AtomicReference<>("");

        void took(long ns, int messages) {
            latencies.recordValue(Math.max(LOWEST_NS, Math.min(HIGHEST_NS, ns)));
            answered.addAndGet(messages);
        }

        void failed(Throwable error, int messages) {
            failed.addAndGet(messages);
            firstError.compareAndSet("", String.valueOf(error));
        }

        JSONObject answer(double seconds) {
            JSONObject answer = new JSONObject();
            answer.put("count", answered.get());
            answer.put("failed", failed.get());
            answer.put("elapsed_s", seconds);
            if (latencies.getTotalCount() > 0) {
                answer.put("latency_hdr", encoded(latencies));
            }
            if (!firstError.get().isEmpty()) {
                answer.put("first_error", firstError.get());
            }
            return answer;
        }
    }

    private static String encoded(Histogram histogram) {
        ByteBuffer buffer = ByteBuffer.allocate(histogram.getNeededByteBufferCapacity());
        int length = histogram.encodeIntoCompressedByteBuffer(buffer);
        byte[] bytes = new byte[length];
        buffer.flip();
        buffer.get(bytes, 0, length);
        return Base64.getEncoder().encodeToString(bytes);
    }

    /** One mode, or the better of both with half of the time each where both can keep the number in flight. */
    private static JSONObject closed(List<DefaultMQProducer> producers, JSONObject job) throws Exception {
        int inFlight = job.getIntValue("in_flight");
        if (job.getIntValue("batch", 1) > 1 || inFlight == 1) {
            return closed(producers, job, false);
        }
        if (inFlight > THREADS_MAX) {
            return closed(producers, job, true);
        }
        job.put("seconds", job.getDoubleValue("seconds") / 2);
        JSONObject threads = closed(producers, job, false);
        JSONObject async = closed(producers, job, true);
        return rate(threads) >= rate(async) ? threads : async;
    }

    private static double rate(JSONObject answer) {
        return answer.getDoubleValue("count") / answer.getDoubleValue("elapsed_s");
    }

    private static JSONObject closed(List<DefaultMQProducer> producers, JSONObject job, boolean async)
        throws Exception {
        long cpu = cpuNs();
        JSONArray topics = job.getJSONArray("topics");
        int size = job.getIntValue("size_bytes");
        int inFlight = job.getIntValue("in_flight");
        int batch = job.getIntValue("batch", 1);
        long bytesMax = job.getLongValue("bytes_max", 128L << 20);
        long messagesMax = Math.max((long) inFlight * batch, bytesMax / Math.max(1, size));
        byte[] body = body(size);
        Measured measured = new Measured();
        AtomicLong sent = new AtomicLong();
        long begin = System.nanoTime();
        long end = begin + (long) (job.getDoubleValue("seconds") * 1e9);
        if (async) {
            Semaphore permits = new Semaphore(inFlight);
            for (int turn = 0; System.nanoTime() < end && sent.get() < messagesMax; turn++) {
                permits.acquire();
                sent.incrementAndGet();
                long started = System.nanoTime();
                producers.get(turn % producers.size()).send(
                    new Message(topics.getString(turn % topics.size()), body),
                    callback(measured, started, permits::release)
                );
            }
            permits.tryAcquire(inFlight, 30, TimeUnit.SECONDS);
        } else {
            List<Thread> threads = new ArrayList<>();
            for (int number = 0; number < inFlight; number++) {
                int first = number;
                Thread thread = new Thread(() -> {
                    DefaultMQProducer producer = producers.get(first % producers.size());
                    int place = first;
                    while (System.nanoTime() < end && sent.get() < messagesMax) {
                        sent.addAndGet(batch);
                        String topic = topics.getString(place % topics.size());
                        place += inFlight;
                        long started = System.nanoTime();
                        try {
                            SendResult result;
                            if (batch == 1) {
                                result = producer.send(new Message(topic, body));
                            } else {
                                List<Message> messages = new ArrayList<>(batch);
                                for (int each = 0; each < batch; each++) {
                                    messages.add(new Message(topic, body));
                                }
                                result = producer.send(messages);
                            }
                            if (result.getSendStatus() != SendStatus.SEND_OK) {
                                throw new IllegalStateException(result.getSendStatus().toString());
                            }
                            measured.took(System.nanoTime() - started, batch);
                        } catch (Exception error) {
                            measured.failed(error, batch);
                        }
                    }
                });
                threads.add(thread);
                thread.start();
            }
            for (Thread thread : threads) {
                thread.join();
            }
        }
        JSONObject answer = measured.answer((System.nanoTime() - begin) / 1e9);
        answer.put("client_mode", async ? "asynchronous sends" : inFlight + " threads");
        answer.put("client_cpu_s", (cpuNs() - cpu) / 1e9);
        return answer;
    }

    private static SendCallback callback(Measured measured, long since, Runnable after) {
        return new SendCallback() {
            @Override
            public void onSuccess(SendResult result) {
                if (result.getSendStatus() == SendStatus.SEND_OK) {
                    measured.took(System.nanoTime() - since, 1);
                } else {
                    measured.failed(new IllegalStateException(result.getSendStatus().toString()), 1);
                }
                after.run();
            }

            @Override
            public void onException(Throwable error) {
                measured.failed(error, 1);
                after.run();
            }
        };
    }

    private static JSONObject open(List<DefaultMQProducer> producers, JSONObject job) throws Exception {
        String topic = job.getJSONArray("topics").getString(0);
        long started = System.nanoTime();
        ConcurrentHistogram delivered = new ConcurrentHistogram(LOWEST_NS, HIGHEST_NS, 3);
        AtomicLong arrived = new AtomicLong();
        DefaultMQPushConsumer consumer = null;
        if (job.getBooleanValue("follow")) {
            consumer = follow(job.getJSONObject("target"), topic, body -> {
                long stamp = ByteBuffer.wrap(body).order(ByteOrder.LITTLE_ENDIAN).getLong();
                if (stamp >= started) {
                    long ns = System.nanoTime() - stamp;
                    delivered.recordValue(Math.max(LOWEST_NS, Math.min(HIGHEST_NS, ns)));
                    arrived.incrementAndGet();
                }
            });
        }
        Measured measured = new Measured();
        JSONObject figures = new JSONObject();
        try {
            offer(producers, job, topic, measured, figures);
            long give = System.nanoTime() + 5_000_000_000L;
            while (consumer != null && arrived.get() < measured.answered.get() && System.nanoTime() < give) {
                Thread.sleep(5);
            }
        } finally {
            if (consumer != null) {
                consumer.shutdown();
            }
        }
        JSONObject answer = measured.answer(figures.getDoubleValue("seconds"));
        figures.remove("seconds");
        answer.putAll(figures);
        answer.put("delivered", arrived.get());
        if (delivered.getTotalCount() > 0) {
            answer.put("delivered_hdr", encoded(delivered));
        }
        return answer;
    }

    private static void offer(
        List<DefaultMQProducer> producers, JSONObject job, String topic, Measured measured, JSONObject figures
    ) throws Exception {
        double rate = job.getDoubleValue("rate");
        double seconds = job.getDoubleValue("seconds");
        int size = job.getIntValue("size_bytes");
        byte[] padding = body(size);
        Random gaps = new Random(job.getIntValue("seed", 1));
        AtomicInteger pending = new AtomicInteger();
        long begin = System.nanoTime();
        long offered = 0;
        long refused = 0;
        double lag = 0;
        for (double due = gap(gaps, rate); due < seconds; due += gap(gaps, rate)) {
            double late = (System.nanoTime() - begin) / 1e9 - due;
            while (late < 0) {
                if (late < -0.0002) {
                    Thread.sleep(0, 100_000);
                } else {
                    Thread.onSpinWait();
                }
                late = (System.nanoTime() - begin) / 1e9 - due;
            }
            lag = Math.max(lag, late);
            long stamp = begin + (long) (due * 1e9);
            offered++;
            if (pending.get() >= OPEN_IN_FLIGHT_MAX) {
                refused++;
                continue;
            }
            byte[] body = padding.clone();
            ByteBuffer.wrap(body).order(ByteOrder.LITTLE_ENDIAN).putLong(stamp);
            pending.incrementAndGet();
            SendCallback answered = callback(measured, stamp, pending::decrementAndGet);
            try {
                producers.get((int) (offered % producers.size())).send(new Message(topic, body), answered);
            } catch (Exception error) {
                answered.onException(error);
            }
        }
        long give = System.nanoTime() + 5_000_000_000L;
        while (pending.get() > 0 && System.nanoTime() < give) {
            Thread.sleep(1);
        }
        figures.put("seconds", (System.nanoTime() - begin) / 1e9);
        figures.put("offered", offered);
        figures.put("refused_by_client", refused);
        figures.put("unanswered", pending.get());
        figures.put("lag_ms_max", lag * 1000);
    }

    private static double gap(Random random, double rate) {
        return -Math.log(1 - random.nextDouble()) / rate;
    }

    private static DefaultMQPushConsumer push(JSONObject target, String topic) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("bench_" + UUID.randomUUID());
        consumer.setNamesrvAddr(target.getString("namesrv"));
        consumer.setInstanceName(UUID.randomUUID().toString());
        consumer.setPullBatchSize(PULL_BATCH);
        consumer.subscribe(topic, "*");
        return consumer;
    }

    private static DefaultMQPushConsumer follow(JSONObject target, String topic, Consumer<byte[]> saw)
        throws Exception {
        DefaultMQPushConsumer consumer = push(target, topic);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                saw.accept(message.getBody());
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        for (int attempt = 0; attempt < 600; attempt++) {
            if (!consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable().isEmpty()) {
                break;
            }
            Thread.sleep(50);
        }
        Thread.sleep(300);
        return consumer;
    }

    private static JSONObject read(JSONObject job) throws Exception {
        String how = job.getString("how");
        JSONObject target = job.getJSONObject("target");
        String topic = job.getJSONArray("topics").getString(0);
        long expected = job.getLongValue("expected");
        AtomicLong touched = new AtomicLong();
        double seconds;
        if ("message".equals(how)) {
            seconds = readPushed(target, topic, expected, touched);
        } else if ("batch".equals(how)) {
            seconds = readPolled(target, topic, expected, touched);
        } else {
            throw new IllegalArgumentException("the Java client has no Arrow batches");
        }
        JSONObject answer = new JSONObject();
        answer.put("count", expected);
        answer.put("elapsed_s", seconds);
        answer.put("touched_bytes", touched.get());
        return answer;
    }

    private static double readPushed(JSONObject target, String topic, long expected, AtomicLong touched)
        throws Exception {
        DefaultMQPushConsumer consumer = push(target, topic);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        AtomicLong count = new AtomicLong();
        AtomicLong begin = new AtomicLong();
        CountDownLatch done = new CountDownLatch(1);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            begin.compareAndSet(0, System.nanoTime());
            for (MessageExt message : messages) {
                touched.addAndGet(message.getBody().length);
            }
            if (count.addAndGet(messages.size()) >= expected) {
                done.countDown();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        try {
            if (!done.await(120, TimeUnit.SECONDS)) {
                throw new IllegalStateException(count.get() + " of " + expected + " messages arrived");
            }
            return (System.nanoTime() - begin.get()) / 1e9;
        } finally {
            consumer.shutdown();
        }
    }

    private static double readPolled(JSONObject target, String topic, long expected, AtomicLong touched)
        throws Exception {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer("bench_" + UUID.randomUUID());
        consumer.setNamesrvAddr(target.getString("namesrv"));
        consumer.setInstanceName(UUID.randomUUID().toString());
        consumer.setPullBatchSize(PULL_BATCH);
        consumer.setAutoCommit(false);
        consumer.start();
        try {
            List<MessageQueue> queues = new ArrayList<>(consumer.fetchMessageQueues(topic));
            consumer.assign(queues);
            for (MessageQueue queue : queues) {
                consumer.seekToBegin(queue);
            }
            long begin = 0;
            long count = 0;
            long give = System.nanoTime() + 120_000_000_000L;
            while (count < expected) {
                List<MessageExt> messages = consumer.poll(1000);
                if (begin == 0 && !messages.isEmpty()) {
                    begin = System.nanoTime();
                }
                for (MessageExt message : messages) {
                    touched.addAndGet(message.getBody().length);
                }
                count += messages.size();
                if (System.nanoTime() > give) {
                    throw new IllegalStateException(count + " of " + expected + " messages arrived");
                }
            }
            return (System.nanoTime() - begin) / 1e9;
        } finally {
            consumer.shutdown();
        }
    }

    private static JSONObject drain(List<DefaultMQProducer> producers, JSONObject job) throws Exception {
        Measured measured = new Measured();
        JSONObject figures = new JSONObject();
        AtomicReference<Exception> failure = new AtomicReference<>();
        Thread adding = new Thread(() -> {
            try {
                offer(producers, job, job.getJSONArray("topics").getString(0), measured, figures);
            } catch (Exception error) {
                failure.set(error);
            }
        });
        adding.start();
        JSONObject drained = read(job);
        adding.join();
        if (failure.get() != null) {
            throw failure.get();
        }
        JSONObject answer = measured.answer(0);
        figures.remove("seconds");
        answer.putAll(figures);
        answer.put("sends_acknowledged", measured.answered.get());
        answer.put("send_rate_offered", job.get("rate"));
        answer.put("count", drained.get("count"));
        answer.put("elapsed_s", drained.get("elapsed_s"));
        return answer;
    }
}
