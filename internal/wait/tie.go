package wait

// MaxTies is how often in a row several takers may take parts of a majority at the same
// instant, so that nobody has it, before that no longer counts as a tie: for TryAcquire in
// tries, for a waiter in rounds. Without a second try such a tie would read as held, and the
// run of a job that all tried for would be skipped by all. Halved, two of a few takers may
// still tie. Without a bound a state that lasts, such as leftovers on a minority beside a
// node that is down, is retried without a pause.
const MaxTies = 4

// A Vote is what one node replied to a try.
type Vote struct {
	Yes    bool   // it stored our value
	Holder string // the value of another that it has; "": none
}

// IsTie reports that several took parts of a majority, and none has it. holder is the value
// that a majority has, or "".
func IsTie(holder string, votes []Vote) bool {
	if holder != "" {
		return false
	}
	first, yes := "", false
	for _, v := range votes {
		switch {
		case v.Holder != "" && first == "":
			first = v.Holder
		case v.Holder != "" && v.Holder != first:
			return true
		}
		yes = yes || v.Yes
	}
	return first != "" && yes
}

// winsTieBreak reports whether mine is the value that goes on after a tie: the one that most
// nodes have, and of several such values the smallest.
func winsTieBreak(votes []Vote, mine string) bool {
	count := map[string]int{mine: 0}
	for _, v := range votes {
		switch {
		case v.Yes:
			count[mine]++
		case v.Holder != "":
			count[v.Holder]++
		}
	}
	for value, n := range count {
		if n > count[mine] || n == count[mine] && value < mine {
			return false
		}
	}
	return true
}
