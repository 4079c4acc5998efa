package wire

import (
	"strings"
	"testing"
	"time"

	"github.com/seed-ce352c9b/redlock/internal/wire/wiretest"
)

func TestLabelsAreShownPlainlyOnlyWhereTheyArePlain(t *testing.T) {
	for _, c := range []struct{ value, want string }{
		{wiretest.ValueOf("web-1:4123"), "web-1:4123"},
		{wiretest.ValueOf("héllo wörld"), "héllo wörld"},
		{wiretest.ValueOf("a:b"), "a:b"},
		{wiretest.ValueOf(""), `""`},
		{"redsync-random==", "another client"},
		{wiretest.ValueOf("a\nb"), `"a\nb"`},
		{wiretest.ValueOf("\x1b[2J"), `"\x1b[2J"`},
		{wiretest.ValueOf("\x7f"), `"\x7f"`},
		{"\xff\xfe", "another client"},
		{wiretest.ValueOf("\xff\xfe"), `"\xff\xfe"`},
		{wiretest.ValueOf(strings.Repeat("n", 1000)), strings.Repeat("n", 200) + "..."},
	} {
		if got := HolderName(c.value); got != c.want {
			t.Errorf("%q: got %s, want %s", c.value, got, c.want)
		}
	}
	t.Run("nor with control characters beyond ASCII, or such as turn a line around", func(t *testing.T) {
		for label, want := range map[string]string{"\u009b2J": `"\u009b2J"`, "\u0085": `"\u0085"`, "a\u202eb": `"a\u202eb"`, "\u2028": `"\u2028"`} {
			if got := HolderName(wiretest.ValueOf(label)); got != want {
				t.Errorf("%q: got %s, want %s", label, got, want)
			}
		}
	})
	t.Run("and a long label of whole characters stays plain", func(t *testing.T) {
		if got := HolderName(wiretest.ValueOf(strings.Repeat("x", 199) + "éé")); strings.HasPrefix(got, `"`) {
			t.Errorf("got %s", got)
		}
	})
}

func TestDurationsAreShownInAsManyDigitsAsAReaderHasUseFor(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0:                                       "0.0ms",
		49 * time.Microsecond:                   "0.0ms",
		412 * time.Microsecond:                  "0.4ms",
		time.Millisecond:                        "1ms",
		1249 * time.Microsecond:                 "1.2ms",
		9949 * time.Microsecond:                 "9.9ms",
		12345 * time.Microsecond:                "12ms",
		50 * time.Millisecond:                   "50ms",
		999 * time.Millisecond:                  "999ms",
		1234 * time.Millisecond:                 "1.23s",
		90 * time.Second:                        "1m30s",
		time.Hour:                               "1h0m0s",
		988*time.Millisecond + time.Microsecond: "988ms",
	} {
		if got := Short(d); got != want {
			t.Errorf("%d ns: got %s, want %s", d, got, want)
		}
	}
}
