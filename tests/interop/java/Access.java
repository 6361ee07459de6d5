import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.remoting.RPCHook;

/** The keys with which the clients of this JVM sign, by the properties access.key and secret.key; none: unsigned. */
final class Access {
    private Access() {
    }

    static RPCHook hook() {
        String user = System.getProperty("access.key");
        return user == null ? null : new AclClientRPCHook(new SessionCredentials(user, System.getProperty("secret.key")));
    }
}
