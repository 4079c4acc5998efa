package redlock_test

import (
	"context"
	"database/sql"
	"errors"
	"expvar"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"time"

	"github.com/seed-ce352c9b/redlock"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9/logging"
)

// The smallest whole program: three masters, one job, one holder at a time.
func Example() {
	runJob := func(ctx context.Context) error {
		l, err := redlock.Open(redlock.Options{}, "redis-1:6379", "redis-2:6379", "redis-3:6379")
		if err != nil {
			return err
		}
		defer l.Close()
		return l.Run(ctx, "jobs/42", 10*time.Second, func(ctx context.Context, lock *redlock.Lock) error {
			return work(ctx, lock.Fence()) // ctx ends when the lock is lost
		})
	}
	_ = runJob
}

// Masters that may come back from a crash without what they granted.
func ExampleOpen_restartGuard() {
	l, err := redlock.Open(redlock.Options{RestartGuard: time.Minute}, "a:6379", "b:6379", "c:6379")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer l.Close()
	_, err = l.TryAcquire(context.Background(), "jobs/42", time.Hour)
	fmt.Println(err)
	// Output:
	// redlock: ttl 1h0m0s is more than Options.RestartGuard, 1m0s: a node that restarts would forget the lock and grant it again; take a shorter ttl and KeepAlive, or a longer guard for all clients
}

func ExampleLocker_Run() {
	l, stop := exampleLocker()
	defer stop()
	ctx := context.Background()

	err := l.Run(ctx, "jobs/42", 10*time.Second, func(ctx context.Context, lock *redlock.Lock) error {
		fmt.Println("held:", lock.Valid())
		return work(ctx, lock.Fence())
	})
	if errors.Is(err, redlock.ErrLost) {
		fmt.Println("the lock was lost before the work was done")
	}
	fmt.Println(err)
	// Output:
	// held: true
	// <nil>
}

func ExampleLocker_TryAcquire() {
	l, stop := exampleLocker()
	defer stop()
	ctx := context.Background()

	rebuildIndex := func() error {
		lock, err := l.TryAcquire(ctx, "index", 10*time.Second)
		if errors.Is(err, redlock.ErrHeld) {
			return nil // another process is at it
		}
		if err != nil {
			return err
		}
		defer lock.Release(ctx)
		return work(ctx, lock.Fence())
	}
	fmt.Println(rebuildIndex())

	other, err := l.TryAcquire(ctx, "index", 10*time.Second)
	if err != nil {
		log.Fatal(err)
	}
	defer other.Release(ctx)
	_, err = l.TryAcquire(ctx, "index", 10*time.Second)
	fmt.Println(errors.Is(err, redlock.ErrHeld))
	// Output:
	// <nil>
	// true
}

// One submission of a form at a time, where no store checks fences.
func ExampleWithoutFence() {
	l, stop := exampleLocker()
	defer stop()
	ctx, formID := context.Background(), "7f3a"

	lock, err := l.Acquire(ctx, "forms/"+formID, time.Minute, redlock.WithoutFence()) // lock.Fence() is 0
	if err != nil {
		fmt.Println(err)
		return
	}
	defer lock.Release(ctx)
	fmt.Println(lock)
	// Output:
	// lock "forms/7f3a", no fence
}

func ExampleLock_KeepAlive() {
	l, stop := exampleLocker()
	defer stop()

	migrate := func(ctx context.Context) error {
		lock, err := l.Acquire(ctx, "schema", 10*time.Second) // waits until ctx is done
		if err != nil {
			return err
		}
		defer lock.Release(ctx)
		held, stop := lock.KeepAlive(ctx) // renews at a third of the ttl
		defer stop()
		if err := work(held, lock.Fence()); err != nil {
			return err // context.Cause(held) is ErrLost if that was why
		}
		return lock.Release(ctx) // ErrLost: it was not ours to the end
	}
	fmt.Println(migrate(context.Background()))
	// Output: <nil>
}

func ExampleQuorumError() {
	l, stop := exampleLocker()
	defer stop()
	ctx := context.Background()

	lock, err := l.TryAcquire(ctx, "jobs/42", 10*time.Second)
	if err != nil {
		log.Fatal(err)
	}
	defer lock.Release(ctx)

	explain := func(w io.Writer, err error) {
		var q *redlock.QuorumError
		if !errors.As(err, &q) {
			return
		}
		fmt.Fprintln(w, q.Err, q.Round.Need, "votes needed; in the way:", q.Round.Value())
		for _, v := range q.Round.Votes {
			fmt.Fprintln(w, v.Node, v.Answer, v.Took, v.Err)
		}
	}
	_, err = l.TryAcquire(ctx, "jobs/42", 10*time.Second)
	explain(io.Discard, err) // the nodes' ports are new each time

	var q *redlock.QuorumError
	fmt.Println(errors.As(err, &q), q.Err, q.Round.Value() == lock.Value())
	// Output: true redlock: held by another true
}

func ExampleLocker_Adopt() {
	giver, taker, stop := exampleLockers()
	defer stop()
	ctx := context.Background()

	lock, err := giver.Acquire(ctx, "upload/7", 10*time.Second)
	if err != nil {
		log.Fatal(err)
	}
	message := lock.Value().Secret() // goes to the other process, with the work

	// In the other process:
	adopted, err := taker.Adopt(ctx, "upload/7", redlock.ValueOf(message), 10*time.Second)
	if err != nil {
		log.Fatal(err) // ErrLost: there was nothing left to take over
	}
	defer adopted.Release(ctx)

	fmt.Println("greater fence:", adopted.Fence() > lock.Fence())
	fmt.Println("the giver has lost it:", errors.Is(lock.Extend(ctx), redlock.ErrLost))
	// Output:
	// greater fence: true
	// the giver has lost it: true
}

func ExampleLocker_Inspect() {
	l, stop := exampleLocker()
	defer stop()
	ctx := context.Background()

	lock, err := l.TryAcquire(ctx, "jobs/42", 10*time.Second, redlock.WithLabel("billing on web-1"))
	if err != nil {
		log.Fatal(err)
	}
	defer lock.Release(ctx)

	s, err := l.Inspect(ctx, "jobs/42")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(s.Held, s.Holder, s.Fence == lock.Fence(), s.Left <= 10*time.Second)
	// Output: true billing on web-1 true true
}

// A store that refuses a smaller fence than it has seen. This write depends on
// nothing that was read before, so that one statement is enough.
func Example_fencedUpdate() {
	setPrice := func(ctx context.Context, db *sql.DB, lock *redlock.Lock, sku string, cents int) error {
		res, err := db.ExecContext(ctx,
			`UPDATE prices SET cents = ?, fence = ? WHERE sku = ? AND fence < ?`,
			cents, lock.Fence(), sku, lock.Fence())
		if err != nil {
			return err
		}
		if n, err := res.RowsAffected(); err != nil || n == 1 {
			return err
		}
		return errors.New("a later holder of the lock has written") // or there is no such sku
	}
	_ = setPrice
}

// A flash sale: more buyers than items. Each reads the stock and writes it back;
// it claims the row by its fence first, so that nobody's write falls between.
func Example_flashSale() {
	l, stop := exampleLocker()
	defer stop()
	ctx := context.Background()
	stock := &row{value: 3}

	buy := func(ctx context.Context) error {
		return l.Run(ctx, "sale/sku-1", 5*time.Second, func(ctx context.Context, lock *redlock.Lock) error {
			left, err := stock.claim(lock.Fence()) // from here on smaller fences are refused
			if err != nil {
				return err
			}
			if left == 0 {
				return errSoldOut
			}
			return stock.write(lock.Fence(), left-1)
		})
	}
	sold := countNil(5, func() error { return buy(ctx) })
	fmt.Println(sold, "sold,", stock.value, "left")
	// Output: 3 sold, 0 left
}

// One run of a job per interval, whichever process comes first. The lock is not
// released but left to expire, and so keeps the others out for the interval, also
// when the process that had it ends before.
func Example_oncePerInterval() {
	web1, web2, stop := exampleLockers()
	defer stop()
	ctx := context.Background()

	tick, interval := time.Now(), time.Hour
	runOncePer := func(l *redlock.Locker, job string, run func(ctx context.Context, fence int64) error) error {
		err := l.Run(ctx, "cron/"+job, 10*time.Second, func(ctx context.Context, lock *redlock.Lock) error {
			if err := run(ctx, lock.Fence()); err != nil {
				return err
			}
			return lock.LeaveUntil(ctx, tick.Add(interval/2)) // in place of Release
		}, redlock.WithWait(0))
		if errors.Is(err, redlock.ErrHeld) {
			return nil // it runs elsewhere, or has run
		}
		return err
	}
	report := func(ctx context.Context, fence int64) error {
		fmt.Println("report sent")
		return nil
	}
	for _, l := range []*redlock.Locker{web1, web2, web1} {
		if err := runOncePer(l, "report", report); err != nil {
			fmt.Println(err)
		}
	}
	// Output: report sent
}

// One leader among several processes: a scheduler that starts what is due. The others wait in Lead, and take over when the
// leader resigns, dies, or cannot renew the lock. Whatever the leader commands is given the term, and refuses a smaller one.
func ExampleLocker_Lead() {
	l, stop := exampleLocker()
	defer stop()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()

	schedule := func(ctx context.Context, term int64) error {
		fmt.Println("leading")
		cancel() // the process is asked to stop
		<-ctx.Done()
		return nil
	}
	err := l.Lead(ctx, "leader/scheduler", 15*time.Second, func(ctx context.Context, lock *redlock.Lock) error {
		return schedule(ctx, lock.Fence()) // until ctx ends; nil: resign
	})
	fmt.Println(errors.Is(err, context.Canceled))
	// Output:
	// leading
	// true
}

// The processes that do not lead learn who does.
func ExampleLocker_Watch() {
	l, other, stop := exampleLockers()
	defer stop()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	go l.Lead(ctx, "leader/scheduler", 15*time.Second, func(ctx context.Context, lock *redlock.Lock) error {
		<-ctx.Done()
		return nil
	}, redlock.WithLabel("web-1"))
	for status, err := range other.Watch(ctx, "leader/scheduler") {
		if err != nil {
			fmt.Println(err) // too few nodes reply, or ctx is done
			continue
		}
		if status.Held {
			fmt.Println(status.Holder, "leads")
			break
		}
	}
	// Output: web-1 leads
}

// An HTTP handler: 409 while another request has the order, 503 while too few nodes reply. examples/http is a whole one.
func Example_httpHandler() {
	l, stop := exampleLocker()
	defer stop()
	charge := func(w http.ResponseWriter, r *http.Request) {
		err := l.Run(r.Context(), "orders/"+r.PathValue("order"), 10*time.Second, func(ctx context.Context, lock *redlock.Lock) error {
			return work(ctx, lock.Fence())
		}, redlock.WithWait(200*time.Millisecond))
		switch {
		case err == nil:
			w.WriteHeader(http.StatusNoContent)
		case errors.Is(err, redlock.ErrHeld):
			http.Error(w, "the order is being processed", http.StatusConflict)
		case errors.Is(err, redlock.ErrNoQuorum):
			http.Error(w, "try again", http.StatusServiceUnavailable)
		default:
			http.Error(w, "internal error", http.StatusInternalServerError)
		}
	}
	w := httptest.NewRecorder()
	charge(w, httptest.NewRequest("POST", "/orders/7/charge", nil))
	fmt.Println(w.Code)
	// Output: 204
}

// A queue that may deliver a message twice, also to two workers at once. A message that another worker has is left to it.
func Example_queueWorker() {
	l, stop := exampleLocker()
	defer stop()
	done := make(map[string]int64) // in a program a table, with the fence

	handle := func(ctx context.Context, message string) (ack bool) {
		err := l.Run(ctx, "messages/"+message, 10*time.Second, func(ctx context.Context, lock *redlock.Lock) error {
			if _, twice := done[message]; twice {
				return nil
			}
			done[message] = lock.Fence()
			fmt.Println("worked on", message)
			return nil
		}, redlock.WithWait(0))
		return err == nil // otherwise the queue delivers it again
	}
	fmt.Println(handle(context.Background(), "m-1"), handle(context.Background(), "m-1"))
	// Output:
	// worked on m-1
	// true true
}

// gocronLocker is what gocron's WithDistributedLocker takes (its Locker and Lock interfaces), for jobs with one interval.
type gocronLocker struct {
	*redlock.Locker
	interval time.Duration
}

type gocronLock struct {
	*redlock.Lock
	stop  context.CancelFunc
	until time.Time
}

func (l gocronLocker) Lock(ctx context.Context, job string) (k gocronLock, err error) {
	lock, err := l.TryAcquire(ctx, "cron/"+job, min(l.interval/2, 10*time.Second))
	if err != nil {
		return k, err // gocron skips the run
	}
	_, stop := lock.KeepAlive(context.WithoutCancel(ctx))
	return gocronLock{lock, stop, lock.Started().Add(l.interval / 2)}, nil
}

func (k gocronLock) Unlock(ctx context.Context) error {
	defer k.stop()
	return k.LeaveUntil(ctx, k.until)
}

// An adapter for gocron, whose schedulers skip a run while another has the job, or has had it in this interval. examples/gocron
// runs it.
func Example_gocron() {
	web1, web2, stop := exampleLockers()
	defer stop()
	ctx := context.Background()
	lock, err := gocronLocker{web1, time.Hour}.Lock(ctx, "report")
	if err != nil {
		log.Fatal(err)
	}
	_, running := gocronLocker{web2, time.Hour}.Lock(ctx, "report")
	fmt.Println(errors.Is(running, redlock.ErrHeld), lock.Unlock(ctx))
	_, hasRun := gocronLocker{web2, time.Hour}.Lock(ctx, "report")
	fmt.Println(errors.Is(hasRun, redlock.ErrHeld))
	// Output:
	// true <nil>
	// true
}

// Several keys at once, all or none, in whatever order they are named.
func Example_severalKeys() {
	l, stop := exampleLocker()
	defer stop()
	ctx := context.Background()

	transfer := func(ctx context.Context, fences []int64) error {
		fmt.Println(len(fences), "locks held")
		return nil
	}
	err := l.RunAll(ctx, []string{"account/8", "account/7"}, 10*time.Second, func(ctx context.Context, locks redlock.Locks) error {
		// ctx ends when either lock is lost.
		return transfer(ctx, []int64{locks[0].Fence(), locks[1].Fence()})
	})
	fmt.Println(err)
	// Output:
	// 2 locks held
	// <nil>
}

// At most three work at once, over all processes.
func Example_boundedConcurrency() {
	l, stop := exampleLocker()
	defer stop()
	ctx := context.Background()

	convert := func() error {
		return l.RunSlot(ctx, "gpu", 3, 10*time.Second, func(ctx context.Context, lock *redlock.Lock, slot int) error {
			fmt.Println(slot < 3, ctx.Err()) // ctx ends when the slot is lost
			return work(ctx, lock.Fence())
		})
	}
	fmt.Println(convert())
	// Output:
	// true <nil>
	// <nil>
}

// A form that is sent twice is worked on once. While the first is at work the
// second is turned away by the lock, and afterwards by what the store remembers.
func Example_noDoubleSubmission() {
	web1, web2, stop := exampleLockers()
	defer stop()
	ctx := context.Background()
	var orders sync.Map // in a program a table whose primary key is the form's id

	submit := func(ctx context.Context, l *redlock.Locker, formID string) (answer string, err error) {
		answer = "done before"
		err = l.Run(ctx, "submit/"+formID, 10*time.Second, func(ctx context.Context, lock *redlock.Lock) error {
			if _, done := orders.Load(formID); done {
				return nil
			}
			if err := work(ctx, lock.Fence()); err != nil {
				return err
			}
			_, twice := orders.LoadOrStore(formID, lock.Fence())
			if !twice { // INSERT: the key decides
				answer = "done"
			}
			return nil
		}, redlock.WithWait(0))
		if errors.Is(err, redlock.ErrHeld) {
			return "being worked on", nil
		}
		return answer, err
	}
	fmt.Println(submit(ctx, web1, "form-9"))
	fmt.Println(submit(ctx, web2, "form-9"))
	// Output:
	// done <nil>
	// done before <nil>
}

// go-redis reports failed dials through a logger of its own, for the whole process.
func Example_quiet() {
	logging.Disable() // github.com/redis/go-redis/v9/logging; or redis.SetLogger
}

// A log of what went wrong, and of how long each lock was held. Values are secrets; a Lock prints its key and fence.
func ExampleTrace() {
	plain := func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey || a.Value.Kind() == slog.KindDuration {
			return slog.Attr{} // differs from run to run
		}
		return a
	}
	logger := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{ReplaceAttr: plain}))
	trace := redlock.Trace{
		End: func(ctx context.Context, call redlock.Call, err error) {
			if err != nil {
				logger.WarnContext(ctx, call.Method, "key", call.Key, "took", call.Took, "attempts", call.Attempts, "held", errors.Is(err, redlock.ErrHeld))
			}
		},
		Event: func(e redlock.Event) {
			switch {
			case e.Kind == redlock.EventRenewed && e.Err == nil: // routine
			case e.Lock == nil:
				logger.Warn(e.Kind.String(), "node", e.Node, "err", e.Err, "down", e.Down)
			default:
				logger.Info(e.Kind.String(), "key", e.Lock.Key(), "held", e.Held, "left", e.Left, "err", e.Err)
			}
		},
	}

	l, stop := exampleLocker(redlock.Options{Trace: trace})
	defer stop()
	err := l.Run(context.Background(), "jobs/42", 10*time.Second, func(ctx context.Context, lock *redlock.Lock) error {
		_, err := l.TryAcquire(context.Background(), "jobs/42", 10*time.Second)
		return err
	})
	fmt.Println(errors.Is(err, redlock.ErrHeld))
	// Output:
	// level=INFO msg=acquired key=jobs/42 err=<nil>
	// level=WARN msg=TryAcquire key=jobs/42 attempts=1 held=true
	// level=INFO msg=released key=jobs/42 err=<nil>
	// level=WARN msg=Run key=jobs/42 attempts=0 held=true
	// true
}

// Figures for a dashboard; with a metrics library each line is one counter or histogram.
func ExampleTrace_metrics() {
	calls, seconds := expvar.NewMap("redlock_calls"), expvar.NewMap("redlock_seconds") // by method and outcome: Acquire's are the waits
	attempts, behind := expvar.NewInt("redlock_attempts"), expvar.NewInt("redlock_behind")
	rounds, answers := expvar.NewMap("redlock_rounds"), expvar.NewMap("redlock_answers") // by what was asked; by node and answer
	roundTrips := expvar.NewMap("redlock_round_trips")                                   // by node, in seconds
	events, held := expvar.NewMap("redlock_events"), expvar.NewMap("redlock_held")       // by kind; seconds, by how it ended
	locks := expvar.NewInt("redlock_locks")                                              // held at present
	outcome := func(err error) string {
		for _, e := range []error{redlock.ErrHeld, redlock.ErrNoQuorum, redlock.ErrLost, redlock.ErrClosed} {
			if errors.Is(err, e) {
				return e.Error()
			}
		}
		return fmt.Sprint(err == nil)
	}
	trace := redlock.Trace{
		End: func(_ context.Context, call redlock.Call, err error) {
			calls.Add(call.Method+" "+outcome(err), 1)
			seconds.AddFloat(call.Method+" "+outcome(err), call.Took.Seconds())
			attempts.Add(int64(call.Attempts)) // more than one: contention
			behind.Add(int64(call.Ahead))      // the length of the queue in this process
		},
		Round: func(_ context.Context, r redlock.Round) {
			rounds.Add(r.Op.String(), 1) // raises and rollbacks included
			for _, v := range r.Votes {
				answers.Add(v.Node+" "+v.Answer.String(), 1)
				roundTrips.AddFloat(v.Node, v.Took.Seconds())
			}
		},
		Event: func(e redlock.Event) {
			events.Add(e.Kind.String()+" "+outcome(e.Err), 1) // extensions, heals, losses, nodes
			switch e.Kind {
			case redlock.EventAcquired:
				locks.Add(1)
			case redlock.EventReleased, redlock.EventLost, redlock.EventLeft:
				locks.Add(-1)
				held.AddFloat(e.Kind.String(), e.Held.Seconds())
			}
		},
	}
	l, stop := exampleLocker(redlock.Options{Trace: trace})
	defer stop()
	lock, err := l.Acquire(context.Background(), "jobs/42", 10*time.Second)
	if err != nil {
		log.Fatal(err)
	}
	lock.Extend(context.Background())
	lock.Release(context.Background())
	fmt.Println(calls)
	fmt.Println(rounds)
	fmt.Println(events)
	// Output:
	// {"Acquire true": 1, "Extend true": 1, "Release true": 1}
	// {"acquire": 1, "extend": 1, "release": 1}
	// {"acquired true": 1, "released true": 1, "renewed true": 1}
}

// A Locker for a test of one's own.
func Example_inProcess() {
	var urls []string
	for range 3 {
		m := miniredis.NewMiniRedis()
		m.ClockTTL(true) // keys expire as time passes
		if err := m.Start(); err != nil {
			log.Fatal(err)
		}
		defer m.Close()
		urls = append(urls, m.Addr())
	}
	l, err := redlock.Open(redlock.Options{}, urls...)
	if err != nil {
		log.Fatal(err)
	}
	defer l.Close()
	fmt.Println(l.Run(context.Background(), "jobs/42", time.Second, func(context.Context, *redlock.Lock) error { return nil }))
	// Output: <nil>
}

// exampleLocker is a Locker over three masters in this process.
func exampleLocker(opt ...redlock.Options) (l *redlock.Locker, stop func()) {
	l, _, stop = exampleLockers(opt...)
	return l, stop
}

// exampleLockers are those of two processes over the same three masters.
func exampleLockers(opt ...redlock.Options) (a, b *redlock.Locker, stop func()) {
	var stops []func()
	var urls []string
	for range 3 {
		m := miniredis.NewMiniRedis()
		m.ClockTTL(true)
		if err := m.Start(); err != nil {
			log.Fatal(err)
		}
		stops = append(stops, m.Close)
		urls = append(urls, m.Addr())
	}
	open := func() *redlock.Locker {
		l, err := redlock.Open(append(opt, redlock.Options{})[0], urls...)
		if err != nil {
			log.Fatal(err)
		}
		return l
	}
	a, b = open(), open()
	return a, b, func() {
		a.Close()
		b.Close()
		for _, s := range stops {
			s()
		}
	}
}

// work stands for what is done under the lock. It hands the fence to the store.
func work(ctx context.Context, fence int64) error { return ctx.Err() }

// A row stands for one of a table that minds fences.
type row struct {
	mu    sync.Mutex
	value int
	fence int64
}

// claim is UPDATE ... SET fence = ? WHERE fence < ?, and then reads.
func (r *row) claim(fence int64) (value int, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fence >= fence {
		return 0, errFenced
	}
	r.fence = fence
	return r.value, nil
}

// write is UPDATE ... SET value = ? WHERE fence = ?: nobody has claimed it since.
func (r *row) write(fence int64, value int) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fence != fence {
		return errFenced
	}
	r.value = value
	return nil
}

var (
	errFenced  = errors.New("a later holder of the lock has been here")
	errSoldOut = errors.New("sold out")
)

// countNil calls f n times at once and counts the successes.
func countNil(n int, f func() error) int {
	var wg sync.WaitGroup
	errs := make([]error, n)
	for i := range n {
		wg.Go(func() { errs[i] = f() })
	}
	wg.Wait()
	ok := 0
	for _, err := range errs {
		if err == nil {
			ok++
		}
	}
	return ok
}
