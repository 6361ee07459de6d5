import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.security.Permission;
import java.util.Arrays;
import java.util.Base64;
import java.util.List;
import org.apache.rocketmq.remoting.protocol.RemotingSerializable;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/**
 * Many mqadmin commands in one JVM: one line of standard input is one command, "limit in ms:word TAB word TAB ...";
 * "api TAB method TAB argument ..." calls the admin API itself.
 *
 * Answers with one line each: {"status":0,"out":base64 of standard output,"err":base64 of standard error}. Status 0:
 * main0 returned; 1: it threw; a command that calls System.exit has its own status, and the JVM goes on; -1: the
 * command was still running after its limit and was interrupted.
 */
public class AdminLoop {
    /** What System.exit becomes. */
    private static final class Exit extends SecurityException {
        final int status;

        Exit(int status) {
            super("exit " + status);
            this.status = status;
        }
    }

    private static final long PAUSE_MILLIS = 20;
    private static final long GRACE_MILLIS = 8000;
    private static volatile boolean isDone;

    /** A Java that has no security managers any more ends with the first command that exits. */
    @SuppressWarnings("removal")
    private static void refuseExit() {
        try {
            System.setSecurityManager(new SecurityManager() {
                @Override
                public void checkPermission(Permission permission) {
                }

                @Override
                public void checkPermission(Permission permission, Object context) {
                }

                @Override
                public void checkExit(int status) {
                    if (!isDone) {
                        throw new Exit(status);
                    }
                }
            });
        } catch (UnsupportedOperationException error) {
            System.err.println("no security manager: " + error);
        }
    }

    /** mqadmin keeps its command objects, some of them with a producer that was shut down: each run gets new ones. */
    private static void forgetCommands() throws ReflectiveOperationException {
        for (Field field : MQAdminStartup.class.getDeclaredFields()) {
            if (List.class.isAssignableFrom(field.getType())) {
                field.setAccessible(true);
                ((List<?>) field.get(null)).clear();
            }
        }
    }

    private static int run(String[] words, long limitMillis) throws Exception {
        int[] status = {0};
        Thread thread = new Thread(() -> {
            try {
                forgetCommands();
                if (words.length > 1 && words[0].equals("api")) {
                    callApi(words[1], Arrays.copyOfRange(words, 2, words.length));
                } else {
                    MQAdminStartup.main0(words, null);
                }
            } catch (Exit exit) {
                status[0] = exit.status;
            } catch (Throwable error) {
                error.printStackTrace();
                status[0] = 1;
            }
        }, "command");
        thread.setDaemon(true);
        thread.start();
        if (endsWithin(thread, limitMillis)) {
            return status[0];
        }
        thread.interrupt();
        endsWithin(thread, GRACE_MILLIS);
        return -1;
    }

    /** Call a method of DefaultMQAdminExt that no command calls, with strings and booleans; print its result as JSON. */
    private static void callApi(String name, String[] words) throws Exception {
        DefaultMQAdminExt admin = new DefaultMQAdminExt();
        admin.setInstanceName("api-" + System.nanoTime());
        admin.start();
        try {
            for (Method method : DefaultMQAdminExt.class.getMethods()) {
                if (!method.getName().equals(name) || method.getParameterCount() != words.length) {
                    continue;
                }
                Object[] values = new Object[words.length];
                for (int i = 0; i < words.length; i++) {
                    boolean isFlag = method.getParameterTypes()[i] == boolean.class;
                    values[i] = isFlag ? (Object) Boolean.valueOf(words[i]) : words[i];
                }
                System.out.println(RemotingSerializable.toJson(method.invoke(admin, values), false));
                return;
            }
            throw new NoSuchMethodException(name);
        } finally {
            admin.shutdown();
        }
    }

    private static boolean endsWithin(Thread thread, long limitMillis) throws InterruptedException {
        long end = System.nanoTime() + limitMillis * 1000000L;
        while (thread.isAlive() && System.nanoTime() < end) {
            thread.join(PAUSE_MILLIS);
            wakeWhatShutsDown(thread);
        }
        return !thread.isAlive();
    }

    /**
     * The 5.3 client joins its NettyEventExecutor, which looks whether it shall end only every 3 s: an interrupt lets
     * it look at once.
     */
    private static void wakeWhatShutsDown(Thread command) {
        for (StackTraceElement frame : command.getStackTrace()) {
            if (frame.getClassName().endsWith(".ServiceThread") && frame.getMethodName().equals("shutdown")) {
                for (Thread thread : Thread.getAllStackTraces().keySet()) {
                    if (thread.getName().startsWith("NettyEventExecutor")) {
                        thread.interrupt();
                    }
                }
                return;
            }
        }
    }

    private static String encoded(ByteArrayOutputStream bytes) {
        return Base64.getEncoder().encodeToString(bytes.toByteArray());
    }

    public static void main(String[] args) throws Exception {
        PrintStream answers = System.out;
        PrintStream errors = System.err;
        refuseExit();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            ByteArrayOutputStream out = new ByteArrayOutputStream();
            ByteArrayOutputStream err = new ByteArrayOutputStream();
            System.setOut(new PrintStream(out, true, "UTF-8"));
            System.setErr(new PrintStream(err, true, "UTF-8"));
            int mark = line.indexOf(':');
            long millis = Long.parseLong(line.substring(0, mark));
            String rest = line.substring(mark + 1);
            int status = run(rest.isEmpty() ? new String[0] : rest.split("\t", -1), millis);
            System.out.flush();
            System.setOut(errors);
            System.setErr(errors);
            answers.println(
                "{\"status\":" + status + ",\"out\":\"" + encoded(out) + "\",\"err\":\"" + encoded(err) + "\"}");
            answers.flush();
        }
        isDone = true;
        Runtime.getRuntime().halt(0);
    }
}
