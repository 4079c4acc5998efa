package redlock

import (
	"fmt"
	"math"
	"math/big"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/seed-ce352c9b/redlock/internal/clock"
	"github.com/seed-ce352c9b/redlock/internal/lane"
	_ "github.com/seed-ce352c9b/redlock/internal/rapidseed" // the same cases each time
	"github.com/seed-ce352c9b/redlock/internal/wire"

	"pgregory.net/rapid"
)

const day = 24 * time.Hour

// exactly is ttl*drift as the numbers are, without the rounding of doubles.
func exactly(ttl time.Duration, drift float64) *big.Rat {
	d := new(big.Rat).SetFloat64(drift)
	return d.Mul(d, new(big.Rat).SetInt64(int64(ttl)))
}

func drawTTL(t *rapid.T) time.Duration {
	return time.Duration(rapid.Int64Range(1, int64(wire.MaxTTL)).Draw(t, "ttl"))
}

func drawDrift(t *rapid.T) float64 {
	return rapid.OneOf(rapid.SampledFrom([]float64{1e-9, 0.0001, 0.01, 0.05, 0.07, 0.1, 0.29, 0.5}), rapid.Float64Range(1e-9, 0.999)).Draw(t, "drift")
}

// Attack 13.
func TestDriftIsRoundedUp(t *testing.T) {
	for _, c := range []struct {
		ttl   time.Duration
		drift float64
		want  time.Duration
	}{
		{100, 0.01, 1},
		{101, 0.01, 2}, // 1.01 ns
		{1, 0.01, 1},
		{1, 1e-9, 1},
		{0, 0.01, 0},
		{10 * time.Second, 0.01, 100 * time.Millisecond},
		{time.Second + 1, 0.01, 10*time.Millisecond + 1},
		{time.Second, 0.5, 500 * time.Millisecond},
	} {
		if got := driftOf(c.ttl, c.drift); got != c.want {
			t.Errorf("driftOf(%d ns, %v): got %d ns, want %d ns", c.ttl, c.drift, got, c.want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		ttl, drift := drawTTL(t), drawDrift(t)
		got := new(big.Rat).SetInt64(int64(driftOf(ttl, drift)))
		over := got.Sub(got, exactly(ttl, drift))
		// A product of doubles is off by up to a 2^53rd part: a quarter of a ns at most.
		if over.Cmp(big.NewRat(-1, 4)) < 0 || over.Cmp(big.NewRat(5, 4)) > 0 {
			f, _ := over.Float64()
			t.Fatalf("driftOf(%v, %v) is %v ns above the product, want 0 up to 1", ttl, drift, f)
		}
	})
}

// Attack 13.
func TestValidityIsTheTTLLessDriftLessGrain(t *testing.T) {
	for _, c := range []struct {
		ttl   time.Duration
		drift float64
		want  time.Duration
	}{
		{10 * time.Second, defaultDrift, 9898 * time.Millisecond}, // the Redis page's example: 10 s - 100 ms - 2 ms
		{time.Second, defaultDrift, 988 * time.Millisecond},
		{time.Second, 0.5, 498 * time.Millisecond},
		{2 * time.Millisecond, defaultDrift, -20 * time.Microsecond},
		{0, defaultDrift, -2 * time.Millisecond},
		{-time.Second, defaultDrift, -992 * time.Millisecond},
	} {
		if got := validity(c.ttl, c.drift); got != c.want {
			t.Errorf("validity(%v, %v): got %v, want %v", c.ttl, c.drift, got, c.want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		ttl, drift := drawTTL(t), drawDrift(t)
		// On the clock of a node that is fast by the drift, the key lives ttl/(1+drift) of our
		// time, which is more than ttl*(1-drift). The grain is on top.
		life := float64(wire.CeilMillis(ttl)) * 1e6 / (1 + drift)
		if valid := validity(ttl, drift); float64(valid) > life-float64(expiryGrain)+1 {
			t.Fatalf("ttl %v, drift %v: validity %v, the key lives %v", ttl, drift, valid, time.Duration(life))
		}
	})
}

// Attacks 9, 10.
func TestTTLsThatLeaveNothingAreRefused(t *testing.T) {
	for _, c := range []struct {
		name    string
		ttl     time.Duration
		timeout time.Duration
		drift   float64
		ok      bool
	}{
		{"zero", 0, 0, defaultDrift, false},
		{"negative", -time.Second, 0, defaultDrift, false},
		{"the most negative", math.MinInt64, 0, defaultDrift, false},
		{"a nanosecond", 1, 0, defaultDrift, false},
		{"below a millisecond", time.Millisecond - 1, 0, defaultDrift, false},
		{"the grain", expiryGrain, 0, defaultDrift, false},
		{"a fraction of a millisecond above the grain", 2500 * time.Microsecond, 0, defaultDrift, true}, // leaves 225 µs
		{"3 ms", 3 * time.Millisecond, 0, defaultDrift, true},
		{"fractional", 10*time.Millisecond + 1, 0, defaultDrift, true},
		{"no longer than the node timeout", 50 * time.Millisecond, 50 * time.Millisecond, defaultDrift, false},
		{"a validity of exactly the node timeout", 100 * time.Millisecond, 97 * time.Millisecond, defaultDrift, false},
		{"a validity of a nanosecond more", 100 * time.Millisecond, 97*time.Millisecond - 1, defaultDrift, true},
		{"all of it drift", time.Second, 0, 0.95, false},
		{"ten seconds", 10 * time.Second, 0, defaultDrift, true},
		{"24 days", wire.MaxTTL, 0, defaultDrift, true},
		{"24 days and a nanosecond", wire.MaxTTL + 1, 0, defaultDrift, false},
		{"a year", 365 * day, 0, defaultDrift, false},
		{"the longest duration", math.MaxInt64, 0, defaultDrift, false},
		{"the longest duration and node timeout", math.MaxInt64, math.MaxInt64, 0.999, false},
		{"the longest node timeout", time.Second, math.MaxInt64, defaultDrift, false},
		{"the grain and the longest node timeout", expiryGrain, math.MaxInt64, defaultDrift, false}, // their difference is below the least int64
	} {
		err := checkTTL(c.ttl, c.timeout, c.drift)
		if (err == nil) != c.ok {
			t.Errorf("%s: checkTTL(%v, %v, %v): got %v, want accepted=%v", c.name, c.ttl, c.timeout, c.drift, err, c.ok)
		}
		if err != nil && !strings.Contains(err.Error(), "ttl "+c.ttl.String()) {
			t.Errorf("%s: the error does not name the ttl %v: %v", c.name, c.ttl, err)
		}
	}
}

func TestTheSmallestTTLThatIsNamedWouldDo(t *testing.T) {
	check := func(t interface{ Fatalf(string, ...any) }, timeout time.Duration, drift float64) {
		least := smallestTTL(timeout, drift)
		if err := checkTTL(least, timeout, drift); err != nil {
			t.Fatalf("node timeout %v, drift %v: the smallest ttl that would do is %v, and is refused: %v", timeout, drift, least, err)
		}
		if err := checkTTL(least-time.Millisecond, timeout, drift); err == nil {
			t.Fatalf("node timeout %v, drift %v: %v is named as the smallest, but a millisecond less does, too", timeout, drift, least)
		}
		if least%time.Millisecond != 0 {
			t.Fatalf("node timeout %v, drift %v: %v is not in whole milliseconds", timeout, drift, least)
		}
		err := checkTTL(1, timeout, drift)
		if err == nil || !strings.HasSuffix(err.Error(), "the smallest usable ttl is "+least.String()) {
			t.Fatalf("node timeout %v, drift %v: the refusal does not name %v: %v", timeout, drift, least, err)
		}
	}
	for _, timeout := range []time.Duration{0, 1, time.Millisecond, 50 * time.Millisecond, time.Second, 30 * time.Second, time.Hour, day} {
		for _, drift := range []float64{1e-9, 0.0001, 0.01, 0.1, 0.5, 0.89, 0.9, 0.91, 0.94} {
			check(t, timeout, drift)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		timeout := time.Duration(rapid.Int64Range(0, int64(day)).Draw(t, "timeout"))
		check(t, timeout, rapid.Float64Range(1e-9, 0.94).Draw(t, "drift"))
	})
	if got := smallestTTL(0, defaultDrift); got != 3*time.Millisecond {
		t.Errorf("by default: got %v, want 3ms", got)
	}
}

func TestARefusalNamesNoTTLThatIsRefusedToo(t *testing.T) {
	named := regexp.MustCompile(`smallest usable ttl is (\S+)$`)
	for _, c := range []struct {
		timeout time.Duration
		drift   float64
	}{{0, 0.9999999}, {0, math.Nextafter(1, 0)}, {30 * day, defaultDrift}, {math.MaxInt64, defaultDrift}, {24 * day, 0.5}} {
		err := checkTTL(time.Second, c.timeout, c.drift)
		if err == nil {
			t.Errorf("node timeout %v, drift %v: one second is accepted", c.timeout, c.drift)
			continue
		}
		if m := named.FindStringSubmatch(err.Error()); m != nil {
			least, perr := time.ParseDuration(m[1])
			if again := checkTTL(least, c.timeout, c.drift); perr != nil || again != nil {
				t.Errorf("node timeout %v, drift %v: it names %v, which is refused: %v", c.timeout, c.drift, m[1], again)
			}
		}
	}
}

func TestNodeTimeoutIsATenthOfTheTTLUpToASecond(t *testing.T) {
	for _, c := range []struct{ ttl, configured, want time.Duration }{
		{10 * time.Second, 0, time.Second},
		{time.Second, 0, 100 * time.Millisecond},
		{time.Hour, 0, time.Second},
		{time.Hour, 3 * time.Second, 3 * time.Second},
		{time.Second, 5 * time.Millisecond, 5 * time.Millisecond},
	} {
		if got := nodeTimeout(c.ttl, c.configured); got != c.want {
			t.Errorf("nodeTimeout(%v, %v): got %v, want %v", c.ttl, c.configured, got, c.want)
		}
	}
}

func TestPatienceIsThreeRoundTripsWhereTheTTLAllowsIt(t *testing.T) {
	p := patienceFor(time.Second, 0, 0, defaultDrift) // 100 ms, at most 494 ms
	for rtt, want := range map[time.Duration]time.Duration{
		0:                      100 * time.Millisecond,
		time.Millisecond:       100 * time.Millisecond,
		50 * time.Millisecond:  150 * time.Millisecond,
		140 * time.Millisecond: 420 * time.Millisecond,
		time.Second:            494 * time.Millisecond, // beyond half of the validity the answer is of no use
	} {
		if got := p.With(rtt); got != want {
			t.Errorf("round trip %v: got %v, want %v", rtt, got, want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		ttl := drawTTL(t)
		drift := rapid.Float64Range(1e-9, 0.7).Draw(t, "drift")
		timeout := time.Duration(rapid.Int64Range(0, int64(ttl)).Draw(t, "timeout"))
		if checkTTL(ttl, timeout, drift) != nil {
			t.Skip("refused")
		}
		rtt := time.Duration(rapid.Int64Range(0, int64(10*time.Second)).Draw(t, "rtt"))
		got := patienceFor(ttl, 0, timeout, drift).With(rtt)
		if got < nodeTimeout(ttl, timeout) {
			t.Fatalf("got %v, less than the node timeout %v", got, nodeTimeout(ttl, timeout))
		}
		if got >= validity(ttl, drift) {
			t.Fatalf("got %v: of the validity %v nothing is left after one node that hangs", got, validity(ttl, drift))
		}
		if got < wire.RoundTrips*rtt && got < validity(ttl, drift)/2 {
			t.Fatalf("got %v for a node at a round trip of %v, although half of the validity is %v", got, rtt, validity(ttl, drift)/2)
		}
	})
}

func TestRenewalsAreSpreadBelowAThirdOfTheTTL(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ttl := time.Duration(rapid.Int64Range(int64(3*time.Millisecond), int64(wire.MaxTTL)).Draw(t, "ttl"))
		u := rapid.Float64Range(0, math.Nextafter(1, 0)).Draw(t, "u")
		got, third := renewAfter(ttl, u), ttl/3
		if got > third || float64(got) < float64(third)*(1-renewJitter)-1 {
			t.Fatalf("renewAfter(%v, %v): got %v, want at most %v and at most a tenth less", ttl, u, got, third)
		}
	})
	for u, want := range map[float64][2]time.Duration{0: {10000, 10000}, 0.5: {7500, 9500}, 1: {5000, 9000}} {
		first, later := firstRenewAfter(30*time.Second, u), renewAfter(30*time.Second, u)
		if first != want[0]*time.Millisecond || later != want[1]*time.Millisecond {
			t.Errorf("of 30s, with %v: got %v and %v, want %d and %d ms", u, first, later, want[0], want[1])
		}
	}
}

// Without a grace, and by default also with one of a third of the ttl.
func TestTwoRenewalsCanFailBeforeTheLockIsInDanger(t *testing.T) {
	for _, ttl := range []time.Duration{50 * time.Millisecond, 100 * time.Millisecond, time.Second, 10 * time.Second, time.Hour, wire.MaxTTL} {
		for _, grace := range []time.Duration{0, ttl / 3} {
			if err := checkGrace(ttl, grace, 0, defaultDrift); err != nil {
				t.Error(err)
			}
			valid, hang := validity(ttl, defaultDrift), nodeTimeout(ttl, 0)
			ends := valid - noticeOf(valid, grace)
			at := renewAfter(window(valid, grace), 0) // the latest
			for range 2 {
				at += hang // as long as a failed one may take
				at += renewAgainAfter(window(valid-at, grace), 0)
			}
			if at+hang >= ends {
				t.Errorf("ttl %v, grace %v: the third try would be answered at %v, the contexts end at %v", ttl, grace, at+hang, ends)
			}
		}
	}
}

func TestTwoRenewalsFitBeforeTheGraceOfEveryTTLThatIsAccepted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ttl := drawTTL(t)
		grace := time.Duration(rapid.Int64Range(1, int64(ttl)).Draw(t, "grace"))
		timeout := time.Duration(rapid.Int64Range(0, int64(ttl/3)).Draw(t, "timeout"))
		drift := rapid.Float64Range(1e-9, 0.7).Draw(t, "drift")
		if checkTTL(ttl, timeout, drift) != nil || checkGrace(ttl, grace, timeout, drift) != nil {
			return
		}
		ends, hang := validity(ttl, drift)-noticeOf(validity(ttl, drift), grace), nodeTimeout(ttl, timeout)
		at := renewAfter(window(validity(ttl, drift), grace), 0) + hang // the latest, for as long as it may take
		at += renewAgainAfter(window(validity(ttl, drift)-at, grace), 0) + hang
		if grace > lossLead && at >= ends {
			t.Fatalf("ttl %v, grace %v, node timeout %v, drift %v: the second renewal is answered at %v, the contexts end at %v", ttl, grace, timeout, drift, at, ends)
		}
	})
}

func TestTheGraceAndTheTTLThatARefusalNamesWouldDo(t *testing.T) {
	err := checkGrace(time.Second, math.MaxInt64, 0, defaultDrift) // a ttl for it would be beyond the greatest int64
	if err == nil || strings.Contains(err.Error(), "smallest") || !strings.HasSuffix(err.Error(), "the greatest usable Grace is 638ms") {
		t.Errorf("the longest grace: got %v, want a refusal that names no ttl", err)
	}
	named := regexp.MustCompile(`^redlock: Options.Grace (\S+) .* ttl (\S+) .*: (?:the greatest usable Grace is (\S+?)|no Grace is usable with this ttl)(?:, the smallest usable ttl is (\S+))?$`)
	rapid.Check(t, func(t *rapid.T) {
		ttl := drawTTL(t)
		grace := time.Duration(rapid.Int64Range(1, math.MaxInt64).Draw(t, "grace"))
		timeout := time.Duration(rapid.Int64Range(0, int64(ttl)).Draw(t, "timeout"))
		drift := rapid.Float64Range(1e-9, 0.99).Draw(t, "drift")
		if checkTTL(ttl, timeout, drift) != nil {
			t.Skip("refused")
		}
		err := checkGrace(ttl, grace, timeout, drift)
		if err == nil {
			return
		}
		m := named.FindStringSubmatch(err.Error())
		if m == nil || m[1] != grace.String() || m[2] != ttl.String() {
			t.Fatalf("the refusal does not read as it should: %v", err)
		}
		if m[3] != "" {
			most, _ := time.ParseDuration(m[3])
			if checkGrace(ttl, most, timeout, drift) != nil || checkGrace(ttl, most+time.Millisecond, timeout, drift) == nil {
				t.Fatalf("the greatest usable Grace is not %v: %v", most, err)
			}
		}
		if m[4] != "" {
			least, _ := time.ParseDuration(m[4])
			if checkGrace(least, grace, timeout, drift) != nil || least > time.Millisecond && checkGrace(least-time.Millisecond, grace, timeout, drift) == nil {
				t.Fatalf("the smallest usable ttl is not %v: %v", least, err)
			}
		}
	})
}

func TestARenewalThatFailedIsTriedAgainInAQuarterOfWhatIsLeft(t *testing.T) {
	for left, want := range map[time.Duration]time.Duration{
		4 * time.Second:       time.Second,
		4 * time.Millisecond:  time.Millisecond,
		400 * time.Nanosecond: time.Millisecond,
		0:                     time.Millisecond,
		-time.Hour:            time.Millisecond,
	} {
		if got := renewAgainAfter(left, 0); got != want {
			t.Errorf("renewAgainAfter(%v, 0): got %v, want %v", left, got, want)
		}
		if got := renewAgainAfter(left, 0.999); got > want || float64(got) < float64(want)*(1-renewJitter)-1 || got < time.Millisecond {
			t.Errorf("renewAgainAfter(%v, 0.999): got %v, want at most %v, at most a tenth less, and a millisecond or more", left, got, want)
		}
	}
}

// By the grace or the lead, whichever is more.
func TestTheLossIsToldALittleBeforeUntil(t *testing.T) {
	for _, c := range []struct{ valid, grace, want time.Duration }{
		{0, 0, 0},
		{time.Millisecond, 0, 50 * time.Microsecond},
		{20 * time.Millisecond, 0, time.Millisecond},
		{time.Hour, 0, time.Millisecond},
		{time.Minute, 1, time.Millisecond},
		{time.Minute, time.Millisecond, time.Millisecond},
		{time.Minute, time.Second, time.Second},
	} {
		if got := noticeOf(c.valid, c.grace); got != c.want {
			t.Errorf("noticeOf(%v, %v): got %v, want %v", c.valid, c.grace, got, c.want)
		}
	}
}

func TestPausesBetweenAttemptsDoubleUpToACap(t *testing.T) {
	for attempt, want := range map[int]time.Duration{
		1: 10, 2: 20, 3: 40, 4: 80, 5: 160, 6: 250, 7: 250, 12: 250,
		64: 250, 65: 250, 1000: 250, math.MaxInt: 250, // a shift that far would be 0
		0: 10, -1: 10, math.MinInt: 10,
	} {
		if got := defaultRetry(attempt); got != want*time.Millisecond {
			t.Errorf("after attempt %d: got %v, want %v", attempt, got, want*time.Millisecond)
		}
	}
}

// Each constant's comment claims something of it. What can be said in numbers is
// said here, so that a change of the one is noticed by the other.
func TestConstantsAreInTheRelationsTheirCommentsClaim(t *testing.T) {
	for _, c := range []struct {
		claim string
		holds bool
	}{
		{"half of the drift still covers quartz (0.02 %) and the slewing of NTP (0.05 %)", defaultDrift/2 > 0.0002+0.0005},
		{"the grain covers a millisecond on either side", expiryGrain >= 2*time.Millisecond},
		{"the longest ttl is below 2^31 ms", wire.MaxTTL < (1<<31)*time.Millisecond},
		{"the node timeout is small compared to the ttl: two nodes that hang in a row leave most of it", 2.0/timeoutsPerTTL <= 0.2},
		{"a node is given a retransmission on top of its answer", wire.RoundTrips >= 3},
		{"half of a register's life would stand clocks half a day apart", wire.RegisterLife/2 == 12*time.Hour},
		{"a register's life is renewed while most of it is left", wire.FenceLife(0).Slack() <= wire.RegisterLife/20},
		{"after two failed renewals there is time for a third", renewalsPerValidity >= 3},
		{"the jitter spreads renewals and leaves most of the pause", renewJitter > 0 && renewJitter <= 0.1},
		{"pauses grow", retryFirst < retryMost},
		{"a token is an integer that doubles count by ones to", float64(wire.MaxToken) != float64(wire.MaxToken)-1 && float64(wire.MaxToken)+1 == float64(wire.MaxToken+1) && wire.MaxToken == 1<<53-1},
		{"the nodes that may hold a lock fit the bits of a word", maxNodes <= 64},
		{"a key does not fill a batch", wire.MaxKeyBytes < lane.MaxBatchBytes},
		{"a label leaves most of a value's length to spare", maxLabelBytes+1+wire.UUIDLen < wire.MaxKeyBytes},
		{"a full queue is cleared in a sixth of a second at 100,000 calls a second", lane.MaxQueue/100000.0 <= 1.0/6},
	} {
		if !c.holds {
			t.Errorf("no longer so: %s", c.claim)
		}
	}
}

func TestARefusedTTLReads(t *testing.T) {
	for _, c := range []struct {
		ttl   time.Duration
		drift float64
		want  string
	}{
		{2 * time.Millisecond, defaultDrift, "redlock: ttl 2ms leaves no time to hold the lock after 1% drift, a node timeout of 200µs and 2ms for rounding: the smallest usable ttl is 3ms"},
		{25 * day, defaultDrift, "redlock: ttl 600h0m0s is more than 576h0m0s: some servers and proxies count milliseconds in 32 bits; use a shorter one and KeepAlive"},
		{1, 0.07, " 7% drift"}, // the drift as it was given
		{1, 0.29, " 29% drift"},
		{1, 0.005, " 0.5% drift"},
	} {
		if got := fmt.Sprint(checkTTL(c.ttl, 0, c.drift)); got != c.want && (c.ttl > 1 || !strings.Contains(got, c.want)) {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
}

// at is the instant that many ms after the start by either clock.
func at(steady, wall int64) clock.Instant {
	return clock.Instant{At: time.Unix(1e9, 0).Add(time.Duration(steady) * time.Millisecond), Wall: 1e15 + wall*1000}
}

// Attack 5.
func TestTimePassesByTheClockThatWentFurther(t *testing.T) {
	for _, c := range []struct {
		name         string
		steady, wall int64 // ms
		want         int64
	}{
		{"both alike", 500, 500, 500},
		{"suspended: only the wall clock went on", 0, 60000, 60000},
		{"the wall clock was set back", 500, -3600000, 500},
		{"the wall clock was set forward", 500, 3600000, 3600000},
		{"nothing passed", 0, 0, 0},
		{"the wall clock stands still", 500, 0, 500},
		{"both went back, which the steady one never does", -5, -7, -5},
	} {
		if got, want := at(c.steady, c.wall).Since(at(0, 0)), time.Duration(c.want)*time.Millisecond; got != want {
			t.Errorf("%s: got %v, want %v", c.name, got, want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		day := int64(86400e3)
		a, b := rapid.Int64Range(-day, day).Draw(t, "steady"), rapid.Int64Range(-day, day).Draw(t, "wall")
		if got := at(a, b).Since(at(0, 0)); got.Milliseconds() < a || got.Milliseconds() < b {
			t.Fatalf("%d ms passed on one clock, %d ms on the other: got %v", a, b, got)
		}
	})
}

func TestTheRealClockTellsOneMomentOnBothClocks(t *testing.T) {
	a := clock.Real()
	if a.At.UnixMicro() != a.Wall {
		t.Errorf("steady %v and wall %d are not one moment", a.At, a.Wall)
	}
	if a.At.Round(0) == a.At { // Round strips it
		t.Errorf("no steady reading")
	}
	if d := clock.Real().Since(a); d < 0 || d > time.Minute {
		t.Errorf("%v passed between two looks", d)
	}
}

// heldFor is a lock taken at 0 with this validity, and the clock it is on.
func heldFor(valid time.Duration) (*Lock, *clock.Instant) {
	now := at(0, 0)
	return &Lock{l: &Locker{now: func() clock.Instant { return now }}, start: now, valid: valid}, &now
}

// Attack 11.
func TestALockIsNotValidAtExactlyUntil(t *testing.T) {
	k, now := heldFor(time.Second)
	for _, c := range []struct {
		name string
		now  clock.Instant
		want bool
	}{
		{"at once", at(0, 0), true},
		{"a millisecond before", at(999, 999), true},
		{"at Until", at(1000, 1000), false},
		{"after", at(1001, 1001), false},
		{"at Until on the wall clock only", at(0, 1000), false},
		{"at Until on the steady clock only", at(1000, -5000), false},
		{"the wall clock set back", at(999, -3600000), true},
	} {
		*now = c.now
		if got := k.Valid(); got != c.want {
			t.Errorf("%s: valid=%v, want %v", c.name, got, c.want)
		}
	}
	*now = at(0, 0)
	now.At = now.At.Add(time.Second - 1)
	if !k.Valid() || k.remaining(*now) != 1 {
		t.Errorf("a nanosecond before Until: valid=%v, left %v", k.Valid(), k.remaining(*now))
	}
	if got, want := k.Until(), at(1000, 0).At; !got.Equal(want) {
		t.Errorf("Until: got %v, want %v", got, want)
	}
	if k, _ := heldFor(0); k.Valid() {
		t.Errorf("a validity of zero: valid")
	}
	for _, s := range []lockState{stateReleasing, stateReleased, stateLost} {
		k, _ := heldFor(time.Second)
		if k.state = s; k.Valid() {
			t.Errorf("given up, state %d: valid", s)
		}
	}
}

func TestARefusedTTLNamesNoTimeoutWhereThereIsNone(t *testing.T) {
	if err := checkTTL(0, 0, defaultDrift); err == nil || strings.Contains(err.Error(), "node timeout") {
		t.Errorf("ttl 0: got %v, want an error without a node timeout", err)
	}
	if err := checkTTL(50*time.Millisecond, 50*time.Millisecond, defaultDrift); err == nil || !strings.Contains(err.Error(), "a node timeout of 50ms") {
		t.Errorf("a ttl of the node timeout: got %v, want an error with it", err)
	}
}

func TestOneCallerIsOneCaller(t *testing.T) {
	name, _ := wire.NameKey("", "job")
	if err := tooManyWaiters(&acquireCall{name: name}, 1); !strings.Contains(err.Error(), ": 1 caller of this Locker") {
		t.Errorf("got %v, want 1 caller", err)
	}
}
