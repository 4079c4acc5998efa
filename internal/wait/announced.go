package wait

// maxAnnounced bounds the announcements of one key that are kept while no majority has made
// them, in values. A release is announced by all nodes within a round trip, so that few are
// pending at once; the bound is there for forged ones. Halved, four forgers at once make a
// true release go unheard, and it is found by the next poll.
const maxAnnounced = 8

// notified is how a release was announced to us so far.
type notified uint8

const (
	notifiedNone   notified = iota
	notifiedSome            // by less than a majority
	notifiedSecond          // by a majority, but others go before us
	notifiedFirst           // by a majority, and to us first
)

// An announcement is a value whose release some nodes have announced.
type announcement struct {
	value    string
	nodes    uint64   // as bits
	firsts   uint64   // of these, the nodes that told us first
	notified notified // what the head was woken for
}

// announcements are those of one key that were heard last. A new value takes the place of the
// oldest.
type announcements struct {
	all    [maxAnnounced]announcement
	oldest int
}

// add counts what a node announced. It returns what that makes of the value, or notifiedNone
// where it makes no more of it than was known: each is acted upon once.
func (as *announcements) add(rules *Rules, node int, value string, first bool) notified {
	a := as.of(value)
	a.nodes |= 1 << node
	if first {
		a.firsts |= 1 << node
	}
	now := notifiedSome
	switch {
	case rules.majority(a.firsts):
		now = notifiedFirst
	case rules.majority(a.nodes):
		now = notifiedSecond
	}
	if now <= a.notified {
		return notifiedNone
	}
	a.notified = now
	return now
}

func (as *announcements) of(value string) *announcement {
	for i := range as.all {
		if as.all[i].value == value {
			return &as.all[i]
		}
	}
	a := &as.all[as.oldest]
	as.oldest = (as.oldest + 1) % maxAnnounced
	*a = announcement{value: value}
	return a
}
