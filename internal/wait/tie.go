package wait

// MaxTies bounds ties in a row, in tries. In a tie several callers take parts of a majority at
// the same instant, so that nobody has it. TryAcquire tries up to MaxTies times: without a
// second try a tie would read as held, and the run of a job that all tried for would be skipped
// by all. For a waiter, a tie after MaxTies others no longer counts as one: leftovers on a
// minority beside a node that is down look like a tie for as long as they last, and would be
// retried without a pause. Halved, TryAcquire more often reports a free lock as held.
const MaxTies = 4

// A Vote is what one node replied to a try.
type Vote struct {
	Yes    bool   // it stored our value
	Holder string // the value of another that it has; "": none
}

// IsTie reports whether several callers took parts of a majority, and none has it. holder is
// the value that a majority of the nodes has, or "".
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
