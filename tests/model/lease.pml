/* lease.pml - the lease protocol of hybrid mode for a greedy token bucket; one key, N instances, one store.
 *
 * It follows docs/design/hybrid.md and src/core/algorithm/lease*.c. There is one process, and every action is one atomic
 * step, so the only choice is which action comes next. Time is discrete: the rate is 1 permit a tick. run.sh searches all
 * states, and shows that each mutant breaks a promise.
 *
 *   shortest trail: spin -a PARAMETERS lease.pml && cc -O2 -DSAFETY -DNOREDUCE -DBFS -o pan pan.c && ./pan; spin -t ...
 *
 * Parameters
 *   N, C, TAU   instances; burst; life of a lease in ticks (over_max = TAU permits)
 *   W           the most permits that one order brings; the store grants any part
 *   BATCHES     grants that an instance may hold at a time, 1 or 2 (the code: 2)
 *   STRICT      1: the store holds TAU permits back, and the bound is C
 *   AGEING      0: a lease ages in each tick since it was asked for in which its holder's own use has refilled (the code
 *                  may count more ticks of the way).   mutants: 1: none of the way, once permits were used in it.
 *                  2: it never ages.  3: it ages from the answer on
 *   USE         0: a permit that has shrunk away but for the life is no own use (lease_spent_is_used).  mutant 1: it is
 *   DIRECT      1: a request may be decided by the store while an order for leases is on its way (lone calls)
 *               2: and its use counts as max(busy_until, asked + cost) if use after `asked` has been noted before
 *   RETURNS     1: rests go back, with the time that lease_take_rest() states.  mutant 2: all of a rest is given back
 *   BACK_AT     1: with a return, own use refills earlier by the age of the lease (lease_date_back).  mutant 0: it does not
 *   SINCE       a return says it was charged 2: at charged + the time since the answer in which the lease has not aged.
 *               mutant 0: at charged + (now - asked - age)
 *   LATE        1: the answer to a direct take may come ticks later
 *   TRIP        0, or the most ticks between a question to the store and its answer
 *   ENV         1: other instances take permits from the store one by one, without leases
 *   CHECKS      1: BOUND, 2: COVER, 3: both
 *   LOST        1: requests and answers may be lost. The same as an answer that comes after all ages have saturated
 *   DRIFT       ticks by which each instance's clock may fall behind the store's, in all
 *   LOSS        times that the store may forget the key
 *   EXTRA       allows so much more, to measure a violation
 *
 * Checked: BOUND  what was used never exceeds C + r*t + TAU in any stretch (a leaky meter M over all uses)
 *          COVER  M <= S + TAU: the store never counts less than was used, but for the stated excess
 */
#ifndef N
#define N 2
#endif
#ifndef C
#define C 2
#endif
#ifndef TAU
#define TAU 1
#endif
#ifndef W
#define W 2
#endif
#ifndef BATCHES
#define BATCHES 1
#endif
#ifndef STRICT
#define STRICT 0
#endif
#ifndef AGEING
#define AGEING 0
#endif
#ifndef USE
#define USE 0
#endif
#ifndef DIRECT
#define DIRECT 2
#endif
#ifndef RETURNS
#define RETURNS 1
#endif
#ifndef BACK_AT
#define BACK_AT 1
#endif
#ifndef SINCE
#define SINCE 2
#endif
#ifndef LATE
#define LATE 1
#endif
#ifndef TRIP
#define TRIP 0
#endif
#ifndef ENV
#define ENV 1
#endif
#ifndef CHECKS
#define CHECKS 3
#endif
#ifndef LOST
#define LOST 0
#endif
#ifndef DRIFT
#define DRIFT 0
#endif
#ifndef LOSS
#define LOSS 0
#endif
#ifndef EXTRA
#define EXTRA 0
#endif
#if STRICT
#define CAP (C - TAU)
#define BOUND (C + LOSS * C + EXTRA)
#else
#define CAP C
#define BOUND (C + TAU + LOSS * C + EXTRA)
#endif
#define OLD (TAU + 1)       /* ages of orders beyond that make no difference */
#define AGES (TAU + W + 1)  /* a grant of that age is worth nothing */
#define LAGS (C + W + 2)    /* further in the past makes no difference to a return */

byte S;                /* permits in use in the store */
byte M;                /* meter of everything that was really used */
#if RETURNS
byte lag;              /* ticks since the store's state last changed; LAGS: long ago */
#define CHANGED lag = 0
#else
#define CHANGED skip
#endif
#if LOSS > 0
byte lost;
#endif

/* Instances. A batch b of instance i has index i*BATCHES+b. */
byte left[N*BATCHES], age[N*BATCHES];
#if RETURNS
byte del[N*BATCHES];   /* ticks between the order and its charge */
byte odel[N];
byte rx[N], rage[N];   /* a return on its way: permits; now - since by the store's clock plus AGES (it may be negative) */
#if BACK_AT
bool ub[N*BATCHES];    /* a permit of it was used */
#define CLEAR(b) left[b] = 0; age[b] = 0; del[b] = 0; ub[b] = false
#else
#define CLEAR(b) left[b] = 0; age[b] = 0; del[b] = 0
#endif
#else
#define CLEAR(b) left[b] = 0; age[b] = 0
#endif
byte busy[N];          /* ticks until the own use has refilled, by the own clock */
byte since[N];         /* ticks since then, capped: now - busy_until */
#if DRIFT > 0
byte slow[N], still[N];
#endif
/* The order for leases: 0 none, 1 on its way, 2 answered */
byte o[N], ogot[N], oage[N], oraw[N];
/* A direct take: 0 none, 1 on its way, 2 admitted and on its way back */
#if DIRECT
byte d[N], draw[N];
#endif
byte i, j, x, y;    /* scratch; 0 between actions */

#define PAST(b, n) (age[b] > TAU -> age[b] - TAU : 0)
#define EFF(b, n) (left[b] - (PAST(b, n) < left[b] -> PAST(b, n) : left[b]))

#if N == 1
#define NONE_BACK (d[0] < 2)
#elif N == 2
#define NONE_BACK (d[0] < 2 && d[1] < 2)
#else
#define NONE_BACK (d[0] < 2 && d[1] < 2 && d[2] < 2)
#endif
#if LATE || !DIRECT
#define READY true
#else
#define READY NONE_BACK
#endif
#if DIRECT
#define IN_TIME(n) ((oraw[n] < TRIP || o[n] == 0) && (draw[n] < TRIP || d[n] == 0))
#else
#define IN_TIME(n) (oraw[n] < TRIP || o[n] == 0)
#endif
#if TRIP == 0
#define TRIPS true
#elif N == 1
#define TRIPS IN_TIME(0)
#else
#define TRIPS (IN_TIME(0) && IN_TIME(1))
#endif
#define SHOW printf("   S=%d M=%d | 0: left %d age %d busy %d order %d | %d: left %d age %d busy %d order %d\n", S, M, left[0], age[0], busy[0], o[0], N-1, left[(N-1)*BATCHES], age[(N-1)*BATCHES], busy[N-1], o[N-1])

inline check() {
    assert(!(CHECKS & 1) || M <= BOUND);
    assert(!(CHECKS & 2) || M <= S + TAU + LOSS * C + EXTRA)
}

/* Use one permit of batch j of instance i. It counts as own use if the lease would have it without its life. */
inline spend() {
    x = EFF(j, i) - 1;                          /* left afterwards, as the code keeps it */
    y = age[j] - PAST(j, i);                    /* its age, as the code keeps it after shrinking */
    left[j] = x; age[j] = y;
#if RETURNS && BACK_AT
    ub[j] = true;
#endif
    if :: (left[j] == 0) -> CLEAR(j) :: else fi;
    M++;
    if
    :: USE || x >= y -> busy[i]++; since[i] = 0;
    :: else
    fi;
    x = 0; y = 0
}

inline tick() {
    if :: S > 0 -> S-- :: else fi;
    if :: M > 0 -> M-- :: else fi;
#if RETURNS
    if :: lag < LAGS -> lag++ :: else fi;
#endif
    for (i : 0 .. N-1) {
#if RETURNS
        if :: (rx[i] > 0 && rage[i] < AGES + LAGS) -> rage[i]++ :: else fi;
        if :: (o[i] == (SINCE == 2 -> 2 : 1) && odel[i] < AGES) -> odel[i]++ :: else fi;
#endif
#if DRIFT > 0
        if
        :: still[i] -> still[i] = 0                    /* the own clock misses this tick */
        :: else ->
#endif
#if AGEING == 1 || TRIP
            if :: (o[i] > 0 && oraw[i] < OLD + TRIP) -> oraw[i]++ :: else fi;
#endif
#if DIRECT
            if :: (d[i] > 0 && draw[i] < OLD + TRIP) -> draw[i]++ :: else fi;
#endif
            if
            :: busy[i] > 0 -> busy[i]--; since[i] = 0
            :: else ->
                if :: since[i] < OLD -> since[i]++ :: else fi;
#if AGEING == 0
                if :: (o[i] > 0 && oage[i] < OLD) -> oage[i]++ :: else fi;
#endif
                for (j : i*BATCHES .. i*BATCHES + BATCHES-1) {
                    if :: (AGEING != 2 && left[j] > 0 && age[j] < AGES) -> age[j]++ :: else fi
                }
            fi;
            for (j : i*BATCHES .. i*BATCHES + BATCHES-1) {
                if :: (left[j] > 0 && EFF(j, i) == 0) -> CLEAR(j) :: else fi
            }
#if DRIFT > 0
        fi
#endif
    }
    i = 0; j = 0
}

#if RETURNS
#define ORDER_ENDS(n) o[n] = 0; ogot[n] = 0; oage[n] = 0; oraw[n] = 0; odel[n] = 0
#else
#define ORDER_ENDS(n) o[n] = 0; ogot[n] = 0; oage[n] = 0; oraw[n] = 0
#endif

active proctype protocol() {
    byte n, g;
    do
    :: d_step { READY && TRIPS -> printf("TICK\n"); tick(); SHOW }
#if DRIFT > 0
    :: atomic {                        /* a tick in which one instance's clock stands still */
        select(n : 0 .. N-1);
        if
        :: d_step { slow[n] < DRIFT && READY && TRIPS -> slow[n]++; still[n] = 1; printf("TICK, %d stands still\n", n); tick(); SHOW; n = 0 }
        :: else -> n = 0
        fi }
#endif
#if LOSS > 0
    :: d_step { lost < LOSS && S > 0 -> printf("the store forgets\n"); lost++; S = 0; CHANGED }
#endif
#if ENV
    :: d_step { S < CAP -> printf("others take 1\n"); S++; CHANGED; M++; SHOW; check() }
#endif
    :: atomic {                        /* an instance acts, or a message of its arrives */
        select(n : 0 .. N-1);
        if
        /* spend a permit of a lease */
        :: d_step { EFF(n*BATCHES, n) > 0 -> printf("%d spends\n", n); i = n; j = n*BATCHES; spend(); i = 0; j = 0; SHOW; check(); n = 0 }
#if BATCHES > 1
        :: d_step { EFF(n*BATCHES, n) == 0 && EFF(n*BATCHES+1, n) > 0 -> printf("%d spends second\n", n); i = n; j = n*BATCHES+1; spend(); i = 0; j = 0; SHOW; check(); n = 0 }
#endif
        /* order permits in advance */
        :: d_step { o[n] == 0 && (left[n*BATCHES] == 0
#if BATCHES > 1
                         || left[n*BATCHES+1] == 0
#endif
                        ) -> printf("%d orders\n", n); o[n] = 1; n = 0 }
        /* the store executes the order: it grants any part of what fits */
        :: o[n] == 1 && S < CAP -> select(g : 1 .. W);
           if
           :: d_step { S + g <= CAP -> printf("store: grants %d to %d\n", g, n); S = S + g; CHANGED; ogot[n] = g; o[n] = 2; n = 0; g = 0; SHOW }
           :: else -> n = 0; g = 0
           fi
        /* the answer arrives */
        :: d_step { o[n] == 2 -> printf("%d has the answer\n", n);
            j = n*BATCHES;
#if BATCHES > 1
            if
            :: left[j] > 0 -> j++
            :: else ->
                if
                :: left[j+1] > 0 -> left[j] = left[j+1]; age[j] = age[j+1];
#if RETURNS
                    del[j] = del[j+1];
#if BACK_AT
                    ub[j] = ub[j+1];
#endif
#endif
                    CLEAR(j+1); j++
                :: else
                fi
            fi;
#endif
#if AGEING == 1
            x = (busy[n] > 0 -> 0 : (since[n] < oraw[n] -> since[n] : oraw[n]));
#elif AGEING < 2
            x = oage[n];
#endif
            if :: (x < TAU && left[j] == 0) -> left[j] = ogot[n]; age[j] = x;
#if RETURNS
#if SINCE == 2
                del[j] = AGES + odel[n] - x;
#else
                del[j] = odel[n];
#endif
#endif
            :: else                     /* too late: lost */
            fi;
            x = 0; j = 0; ORDER_ENDS(n); SHOW; n = 0 }
#if LOST
        :: d_step { o[n] > 0 -> printf("order of %d lost\n", n); ORDER_ENDS(n); n = 0 }
#endif
#if DIRECT
        /* one request decided by the store alone. If its answer will be lost, nobody uses the permit. */
        :: d_step { d[n] == 0 -> printf("%d asks directly\n", n); d[n] = 1; draw[n] = 0; n = 0 }
        :: d_step { d[n] == 1 && S < CAP -> printf("store: admits %d directly\n", n); S++; CHANGED; M++; d[n] = 2; SHOW; check(); n = 0 }
#if LOST
        :: d_step { d[n] == 1 && S < CAP -> S++; CHANGED; d[n] = 0; draw[n] = 0; n = 0 }
        :: d_step { d[n] == 1 -> d[n] = 0; draw[n] = 0; n = 0 }
#endif
        :: d_step { d[n] == 2 -> printf("%d has the direct answer\n", n); /* busy_until = max(busy_until, asked) + 1 */
#if RETURNS && BACK_AT
            for (j : n*BATCHES .. n*BATCHES + BATCHES-1) { if :: left[j] > 0 -> ub[j] = true :: else fi } j = 0;
#endif
#if DIRECT == 2
            if                         /* a rule: what is known of later use stays, busy_until = max(busy_until, asked + 1) */
            :: (busy[n] > 0 && draw[n] > 0) -> skip
            :: (busy[n] == 0 && since[n] < draw[n]) -> skip
            :: else ->
#endif
            if
            :: busy[n] > 0 -> busy[n]++
            :: else ->
                x = (since[n] < draw[n] -> since[n] : draw[n]);
                if
                :: x == 0 -> busy[n] = 1; since[n] = 0
                :: else -> since[n] = x - 1
                fi
            fi;
#if DIRECT == 2
            fi;
#endif
            x = 0; d[n] = 0; draw[n] = 0; SHOW; n = 0 }
#endif
#if RETURNS
        /* give back all of a batch: now - since = age - (charged - asked) */
        :: d_step { rx[n] == 0 && EFF(n*BATCHES, n) > 0 -> printf("%d gives back\n", n);
            j = n*BATCHES;
            rx[n] = EFF(j, n); y = age[j] - PAST(j, n);
#if BACK_AT
            if
            :: ub[j] ->
                x = (busy[n] > y -> 0 : y - busy[n]);
                if
                :: busy[n] > y -> busy[n] = busy[n] - y
                :: busy[n] > 0 && busy[n] <= y -> busy[n] = 0; since[n] = 0
                :: busy[n] == 0
                fi;
                if :: o[n] > 0 -> oage[n] = (oage[n] + x > OLD -> OLD : oage[n] + x) :: else fi;
                for (i : n*BATCHES .. n*BATCHES + BATCHES-1) {
                    if :: (i != j && left[i] > 0) -> age[i] = (age[i] + x > AGES -> AGES : age[i] + x) :: else fi
                }
                i = 0; x = 0
            :: else
            fi;
#endif
#if SINCE == 0
            rage[n] = AGES + y - del[j];
#else
            rage[n] = y + del[j];
#endif
            CLEAR(j); j = 0; y = 0; SHOW; n = 0 }
        :: d_step { rx[n] > 0 -> printf("store: return of %d\n", rx[n]);
#if RETURNS == 2
            x = 0;
#else
            x = (lag > LAGS -> 0 : (rage[n] > AGES + lag -> rage[n] - AGES - lag : 0));
#endif
            y = (rx[n] > x -> rx[n] - x : 0);
            S = (S > y -> S - y : 0);
            x = 0; y = 0; rx[n] = 0; rage[n] = 0; SHOW; check(); n = 0 }
#if LOST
        :: d_step { rx[n] > 0 -> rx[n] = 0; rage[n] = 0; n = 0 }
#endif
#endif
        :: else -> n = 0
        fi }
    od
}
