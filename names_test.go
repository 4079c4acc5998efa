package redlock

import (
	"fmt"
	"strings"
	"testing"
)

func TestNamesAreKeptForSoManyShortKeys(t *testing.T) {
	var n keyNames
	name := func(key string) any {
		k, err := n.of("app:", key)
		if err != nil {
			t.Fatal(err)
		}
		if k.Key != key || k.Full != "app:"+key {
			t.Fatalf("of %q: got the names of %q, %q", key, k.Key, k.Full)
		}
		return k
	}
	if name("a") != name("a") {
		t.Error("the names of a key were made twice in a row")
	}
	if long := strings.Repeat("x", maxNamedBytes); name(long) == name(long) {
		t.Error("the names of a long key are kept")
	}
	for i := range 3 * maxNames {
		name(fmt.Sprint(i))
		if len(n.all) > maxNames {
			t.Fatalf("%d names are kept, want at most %d", len(n.all), maxNames)
		}
	}
	if _, err := n.of("", ""); err == nil {
		t.Error("the empty key: no error")
	}
}
