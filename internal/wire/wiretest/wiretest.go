// Package wiretest makes replies of Redis servers for tests, from bytes that a fuzzer chooses.
package wiretest

import (
	"encoding/binary"
	"io"
	"math"
	"strconv"

	"github.com/redis/go-redis/v9"
)

// A Said is a Redis error reply, as go-redis returns it.
type Said string

func (s Said) Error() string { return string(s) }
func (Said) RedisError()     {}

// Values of locks, of two holders.
const (
	Mine   = "me:11111111-2222-4333-8444-555555555555"
	Theirs = "web-1:4123:aaaaaaaa-bbbb-4ccc-8ddd-eeeeeeeeeeee"
)

// ValueOf is a value with that label.
func ValueOf(label string) string { return label + ":11111111-2222-4333-8444-555555555555" }

// A Feed makes reply values of bytes: the types that go-redis can give, nested.
type Feed struct {
	Bytes []byte
	Errs  []error // for Err to choose from
}

func (d *Feed) Byte() byte {
	if len(d.Bytes) == 0 {
		return 0
	}
	c := d.Bytes[0]
	d.Bytes = d.Bytes[1:]
	return c
}

func (d *Feed) Text() string {
	n := min(int(d.Byte()), len(d.Bytes))
	s := string(d.Bytes[:n])
	d.Bytes = d.Bytes[n:]
	return s
}

func (d *Feed) Word() (n uint64) {
	var w [8]byte
	d.Bytes = d.Bytes[copy(w[:], d.Bytes):]
	return binary.LittleEndian.Uint64(w[:])
}

func (d *Feed) Value(depth int) any {
	switch d.Byte() % 10 {
	case 0:
		return nil
	case 1:
		return int64(int8(d.Byte()))
	case 2:
		return int64(d.Word())
	case 3:
		return d.Text()
	case 4:
		return [...]string{"OK", Mine, Theirs, "QUEUED", ""}[d.Byte()%5]
	case 5:
		return math.Float64frombits(d.Word())
	case 6:
		return d.Byte()%2 == 0
	case 7:
		return Said(d.Text())
	case 8:
		return strconv.FormatInt(int64(d.Word()), 10)
	}
	var list []any
	for n := d.Byte() % 6; n > 0 && depth < 3; n-- {
		list = append(list, d.Value(depth+1))
	}
	return list
}

func (d *Feed) Err() error {
	switch d.Byte() % 5 {
	case 1:
		return redis.Nil
	case 2:
		return Said(d.Text())
	case 3:
		return io.EOF
	case 4:
		if len(d.Errs) > 0 {
			return d.Errs[int(d.Byte())%len(d.Errs)]
		}
	}
	return nil
}
