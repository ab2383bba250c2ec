package com.acme.bank;

import java.util.List;
import static java.lang.Math.max;
import com.acme.bank.Money;
import com.acme.tools.*;
import org.slf4j.Logger;

/** An account. */
@Deprecated
public class Account<T extends Comparable<T>> extends Base implements Runnable {
    public static final int LIMIT = 10, MORE = 11;
    private String owner;
    protected double balance;

    public Account(String owner) throws IllegalStateException {
        this.owner = owner;
    }

    @Override
    public void run() {}

    private int secret() { return 1; }
    abstract <R> List<R> all(Class<R> kind);

    public interface Listener { void changed(int now); int MODE = 1; }
    enum Kind { OPEN(1), CLOSED; Kind() {} int code() { return 0; } }
    public record Entry(String name, int amount) { Entry { } }
    @interface Mark { String value() default ""; }
}
