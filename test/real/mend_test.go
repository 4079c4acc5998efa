package real_test

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-ce352c9b/redlock"
)

// An operator mends the register of one node by the script of docs/operations.md, while clients go on.
func TestRealAnIllRegisterIsMended(t *testing.T) {
	r := realStart(t, 3)
	text, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	script := ""
	for l := range strings.Lines(string(text)) {
		if _, rest, ok := strings.Cut(l, `EVAL "`); ok {
			script, _, _ = strings.Cut(rest, `"`)
		}
	}
	const register = "{job}:fence"
	mend := func(read, greatest string) string {
		v, err := r.admin[0].Eval(t.Context(), script, []string{register}, read, greatest).Result()
		if err != nil {
			t.Fatalf("the script of the docs: %v", err)
		}
		return fmt.Sprint(v)
	}
	score := func(i int) string {
		v, err := r.admin[i].ZScore(t.Context(), register, "f").Result()
		if err != nil {
			t.Fatal(err)
		}
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	l := r.open(t, redlock.Options{})
	fence := int64(0)
	grows := func(when string) {
		t.Helper()
		k := realAcquire(t, l, "job", time.Minute)
		if k.Fence() <= fence || k.Fence() > time.Now().Add(time.Hour).UnixMicro() {
			t.Errorf("%s: got token %d after %d, want a greater one near the clock", when, k.Fence(), fence)
		}
		fence = k.Fence()
		realRelease(t, k)
	}
	grows("before")
	const ill = "9007199254740990"
	if err := r.admin[0].ZAdd(t.Context(), register, redis.Z{Score: 9007199254740990, Member: "f"}).Err(); err != nil {
		t.Fatal(err)
	}
	grows("one register is ill")
	if got := score(0); got != ill {
		t.Fatalf("the ill register: got %s, want %s", got, ill)
	}
	greatest := max(score(1), score(2)) // of as many digits
	for what, args := range map[string][2]string{"another number was read": {"9007199254740989", greatest}, "a sound register": {score(1), greatest}} {
		if got := mend(args[0], args[1]); got != "0" || score(0) != ill {
			t.Errorf("%s: got %s and register %s, want 0 and no change", what, got, score(0))
		}
	}
	if got := mend(ill, greatest); got != "1" || score(0) != greatest {
		t.Errorf("mended: got %s and register %s, want 1 and %s", got, score(0), greatest)
	}
	if got := mend(greatest, "1"); got != "0" || score(0) != greatest {
		t.Errorf("a register that is not ill: got %s and register %s, want 0 and no change", got, score(0))
	}
	grows("mended")
	if err := r.servers[2].Kill(); err != nil { // so that the mended one has to count
		t.Fatal(err)
	}
	grows("mended, without another node")
}
