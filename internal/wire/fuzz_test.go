package wire

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/seed-ce352c9b/redlock/internal/wire/wiretest"
)

// Attack 92.
func FuzzNameKey(f *testing.F) {
	for _, key := range someKeys {
		if len(key) < 1000 {
			f.Add("", key)
			f.Add("app:", key)
			f.Add(key, key)
		}
	}
	f.Add("", "{jobs/42}:fence")
	f.Add("{", "}:queue")
	f.Fuzz(func(t *testing.T, prefix, key string) {
		k, err := NameKey(prefix, key)
		if err != nil {
			if k != nil || !strings.HasPrefix(err.Error(), "redlock: ") || len(err.Error()) > 2000 {
				t.Fatalf("%q: got %+v, %v", prefix+key, k, err)
			}
			return
		}
		checkNames(t, k, prefix, key)
		// The names tell the key, so no other key has them.
		stem, ok := strings.CutSuffix(k.args.fence.(string), fenceSuffix)
		back := strings.TrimSuffix(strings.TrimPrefix(stem, "{"), "}")
		if strings.ContainsAny(k.Full, "{}") {
			_, back, ok = strings.Cut(stem, "}:")
		}
		if !ok || back != k.Full {
			t.Errorf("%q names %q, want %q", k.args.fence, back, k.Full)
		}
	})
}

// feedErrs are the errors that a fuzzer may choose from, beside those of every reply.
func feedErrs() []error {
	errs := []error{readTimeout(), refused()}
	for _, no := range misleading {
		errs = append(errs, fmt.Errorf("wrapped: %w", no))
	}
	for _, e := range slices.Concat(nodeErrors, lateErrors) {
		errs = append(errs, said(e.text))
	}
	return errs
}

// Attack 31.
func FuzzRead(f *testing.F) {
	for k := range byte(len(allKinds)) {
		f.Add([]byte{k, 0, 0, 1, 1, 1, 0, 0})                               // a nil reply and 1
		f.Add([]byte{k, 0, 1, 1, 0, 0, 0, 0})                               // 1
		f.Add([]byte{k, 0, 9, 2, 1, 2, 8, 1, 2, 3, 4, 5, 6, 0, 0, 0, 0})    // {2, "a score"}
		f.Add([]byte{k, 0, 9, 3, 4, 2, 1, 255, 4, 4, 0, 0, 0})              // {value, -1, ""}
		f.Add([]byte{k, 1, 4, 0, 0, 1, 1, 0, 0})                            // OK to the plain form
		f.Add([]byte{k, 0, 0, 6, 16, 0, 6, 16, 6, 16})                      // errors of the node
		f.Add([]byte{k, 0, 0, 5, 1, 0, 5, 2, 5, 3})                         // errors that would mislead
		f.Add([]byte{k, 0, 9, 1, 9, 1, 9, 1, 9, 1, 1, 1, 0, 0, 0, 0})       // nested
		f.Add([]byte{k, 0, 9, 3, 1, 1, 1, 1, 1, 99, 0, 0})                  // {1, 1, a time}: our turn
		f.Add([]byte{k, 0, 9, 5, 1, 0, 4, 2, 1, 50, 1, 3, 1, 99, 0, 0})     // {0, a holder, left, before, a time}, but for its end
		f.Add([]byte{k, 0, 9, 3, 1, 254, 1, 3, 1, 99, 0, 0})                // {-2, before, a time}: a place
		f.Add([]byte{k, 0, 1, 254, 0, 0})                                   // -2
		f.Add([]byte{k, 0, 0, 0, 0, 0, 2, 9, 'W', 'R', 'O', 'N', 'G', 'P'}) // untouched
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		d := &wiretest.Feed{Bytes: b, Errs: feedErrs()}
		k := allKinds[int(d.Byte())%len(allKinds)]
		plain := d.Byte()%2 == 1 && k == AskAcquire
		first := got{d.Value(0), d.Err()}
		second := got{d.Value(0), d.Err()}
		exec := d.Err()
		q := questionOf(k)
		r := q.Read(commands(first, second), plain, exec)
		judged := r
		if k == AskTurn { // it moves the register in the same step as it grants
			judged.Fenced = false
			if list, _ := first.val.([]any); r.Fenced && (first.err != nil || len(list) < 3 || list[0] != int64(1) || list[1] != int64(1)) {
				t.Errorf("fenced by %#v", first)
			}
		}
		checkReply(t, q, plain, judged)
		if k != AskAcquire || r.Answer != Yes {
			return
		}
		// A lock is granted by one answer in each form. (What the plain form takes for
		// it beyond "OK" is in TestWithoutGETOnlyOKGrantsALock.)
		if !plain && !errors.Is(first.err, redis.Nil) || plain && first.err != nil {
			t.Errorf("plain=%v: granted by %#v", plain, first)
		}
		if r.Fenced && (second.err != nil || second.val != int64(1)) {
			t.Errorf("fenced by %#v", second)
		}
	})
}

// Attack 86.
func FuzzExplain(f *testing.F) {
	for _, c := range slices.Concat(nodeErrors, lateErrors) {
		f.Add(c.text, byte(0))
	}
	for i := range byte(5) {
		f.Add("i/o timeout", i)
	}
	f.Add("", byte(0))
	f.Add("ERR  script: ", byte(0))
	f.Fuzz(func(t *testing.T, text string, how byte) {
		var err error
		switch how % 5 {
		case 0:
			err = said(text)
		case 1:
			err = errors.New(text)
		case 2:
			err = fmt.Errorf("%s: %w", text, misleading[len(text)%len(misleading)])
		case 3:
			err = fmt.Errorf("%s: %w", text, said(text))
		case 4:
			err = fmt.Errorf("%s: %w", text, readTimeout())
		}
		e, told := Explain(err)
		var re redis.Error
		if told != errors.As(err, &re) {
			t.Fatalf("%q: said=%v", err, told)
		}
		if !told && !e.Transient {
			t.Errorf("%q: what happened on the way does not heal", err)
		}
		if told && len(text) < 200 && !strings.Contains(text, e.Text) && !strings.HasPrefix(e.Text, `"`) { // long ones are clipped, others quoted
			t.Errorf("%q: shown as %q", text, e.Text)
		}
		for _, no := range misleading {
			if errors.Is(e, no) {
				t.Errorf("%q matches %v", err, no)
			}
		}
		for _, k := range allKinds {
			r := failed(k, err)
			if r.Answer != Unknown || told && (r.Stored != (k.Stores() && (!notExecuted(r.Err.Text) || refusedInScript(r.Err.Text))) || r.Silent) || !told && r.Sent && r.Stored != k.Stores() {
				t.Errorf("kind %d, %q: got %+v", k, err, r)
			}
		}
	})
}

func FuzzReadIdentity(f *testing.F) {
	f.Add("# Server\r\nredis_version:7.0.15\r\nrun_id:0123abc\r\n")
	f.Add("run_id:\r\n")
	f.Add("run_id:a\x00\nrun_id:b")
	f.Add("\r\r\n\nrun_id: x ")
	f.Add("")
	f.Fuzz(func(t *testing.T, info string) {
		got := ReadIdentity(&commands(got{val: info})[0], new(Command), nil)
		if got == nil {
			t.Fatalf("%q: an answer is taken for none", info)
		}
		if got.RunID != strings.TrimSpace(got.RunID) || strings.Contains(got.RunID, "\n") || !strings.Contains(info, got.RunID) {
			t.Errorf("%q: got the run_id %q", info, got.RunID)
		}
		if got.RunID != "" && !strings.Contains(info, "run_id:") {
			t.Errorf("%q: got the run_id %q", info, got.RunID)
		}
	})
}

func FuzzLabelOf(f *testing.F) {
	for _, v := range []string{"", "x", ":", mine, theirs, wiretest.ValueOf(""), strings.Repeat(":", 37), strings.Repeat("-", 37), ":--------------------------------------", "\xff" + mine, "a\u202e" + mine} {
		f.Add(v)
	}
	f.Fuzz(func(t *testing.T, value string) {
		label := LabelOf(value)
		if !strings.HasPrefix(value, label) {
			t.Fatalf("%q: got the label %q", value, label)
		}
		if !IsOurs(value) && label != "" {
			t.Errorf("%q is not ours, and has the label %q", value, label)
		}
		if IsOurs(value) && (len(value) != len(label)+1+UUIDLen || value[len(label)] != ':') {
			t.Errorf("%q: the label is %q", value, label)
		}
		if v := value + ":" + mine[3:]; !IsOurs(v) || LabelOf(v) != value { // whatever the label
			t.Errorf("%q: the label is %q, want %q", v, LabelOf(v), value)
		}
		shown := HolderName(value)
		if !IsOurs(value) && value != "" && shown != "another client" {
			t.Errorf("%q is shown as %q", value, shown)
		}
		if len(shown) > 4*203+2 || strings.ContainsFunc(shown, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			t.Errorf("%q is shown as %q", value, shown)
		}
	})
}

// Attack 71.
func FuzzReadScore(f *testing.F) {
	for _, s := range []string{"0", "-1", "7.5", "1700000000123456", "9007199254740990", "9007199254740991", "9007199254740992", "inf", "-inf", "nan", "1e300", "1e999", "word", "", "0x1p10", "1_000", "+7", " 7"} {
		f.Add(s, uint64(0))
	}
	for _, x := range []float64{0, -1, MaxToken, MaxToken - 1, math.Inf(1), math.Inf(-1), math.NaN(), math.MaxFloat64, math.SmallestNonzeroFloat64} {
		f.Add("", math.Float64bits(x))
	}
	f.Fuzz(func(t *testing.T, text string, bits uint64) {
		for _, v := range []any{text, math.Float64frombits(bits), int64(bits), []byte(text)} {
			score, e := ReadScore(v)
			if e == nil && (score < 0 || score >= MaxToken) || e != nil && (score != 0 || e.Transient) {
				t.Errorf("%#v: got %d, %v", v, score, e)
			}
			if e != nil && (!strings.HasPrefix(e.Text, "fence register") || len(e.Text) > 1200) {
				t.Errorf("%#v: got %q", v, e.Text)
			}
			if x, ok := v.(float64); ok && e == nil && x > 0 && (float64(score) > x || float64(score)+1 <= x) {
				t.Errorf("%v is read as %d", x, score)
			}
			if x, ok := v.(int64); ok && e == nil && x > 0 && score != x {
				t.Errorf("%d is read as %d", x, score)
			}
			if _, ok := v.([]byte); ok && e == nil {
				t.Errorf("%#v is read as %d", v, score)
			}
		}
	})
}
