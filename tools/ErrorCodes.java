import org.apache.kafka.common.errors.AuthenticationException;
import org.apache.kafka.common.errors.AuthorizationException;
import org.apache.kafka.common.errors.InvalidMetadataException;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.protocol.Errors;

/** Prints Kafka's Errors enum, one code per line, for tools/generate_error_codes.py. */
public class ErrorCodes {
    public static void main(String[] args) {
        for (Errors error : Errors.values()) {
            Throwable exception = error.exception();
            if (exception == null) {
                continue;  // NONE
            }
            System.out.println(String.join("\t",
                Integer.toString(error.code()),
                error.name(),
                exception.getClass().getSimpleName(),
                Boolean.toString(exception instanceof RetriableException),
                Boolean.toString(exception instanceof InvalidMetadataException),
                Boolean.toString(exception instanceof AuthenticationException
                    || exception instanceof AuthorizationException),
                exception.getMessage()));
        }
    }
}
