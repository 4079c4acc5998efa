package sim

import (
	"fmt"
	"os"
	"time"

	"github.com/anishathalye/porcupine"
)

// An independent judge: porcupine searches for an order of all acquisitions and ends of claims that is consistent with real
// time and in which the lock is free whenever it is acquired and every fence, of those that have one, is greater than all before. It shares nothing
// with the other judges but the history.

type event struct {
	take  bool // an acquisition; otherwise the end of a claim
	key   int
	who   string
	fence int64
}

// A registry is the state of one lock and its register.
type registry struct {
	holder string
	fence  int64
}

// model returns the specification. If exclusive, one holder at a time and increasing fences; otherwise increasing fences only,
// for runs in which exclusion is not promised (wild clocks).
func model(exclusive bool) porcupine.Model {
	return porcupine.Model{
		Partition: func(all []porcupine.Operation) (parts [][]porcupine.Operation) {
			at := map[int]int{}
			for _, o := range all {
				key := o.Input.(event).key
				i, ok := at[key]
				if !ok {
					i = len(parts)
					at[key] = i
					parts = append(parts, nil)
				}
				parts[i] = append(parts[i], o)
			}
			return parts
		},
		Init: func() any { return registry{} },
		Step: func(state, input, _ any) (bool, any) {
			m, e := state.(registry), input.(event)
			if !e.take {
				return m.holder == e.who, registry{fence: m.fence}
			}
			if exclusive && m.holder != "" || e.fence <= m.fence && e.fence != 0 {
				return false, m
			}
			m.fence = max(m.fence, e.fence)
			if exclusive {
				m.holder = e.who
			}
			return true, m
		},
		Equal: func(a, b any) bool { return a == b },
		DescribeOperation: func(input, _ any) string {
			if e := input.(event); e.take {
				return fmt.Sprintf("k%d: %s acquires, fence %d", e.key, labelOf(e.who), e.fence)
			}
			return fmt.Sprintf("k%d: %s ends", input.(event).key, labelOf(input.(event).who))
		},
		DescribeState: func(state any) string {
			m := state.(registry)
			return fmt.Sprintf("%s, fence %d", labelOf(m.holder), m.fence)
		},
	}
}

// operations returns the history in porcupine's form. It omits claims for which nothing is promised: those that a majority has
// lost, and those whose registers did not remain on a majority.
func (h *History) operations() (ops []porcupine.Operation, exclusive bool) {
	exclusive = !h.Schedule.Unsafe
	for _, c := range h.Claims {
		if h.Schedule.Guard == 0 && c.Forgotten != never || c.Fence != 0 && (!h.keeps(c, h.Length) || h.lostRegister(c)) {
			continue
		}
		end := c.End()
		if exclusive && end <= c.Got {
			continue // never valid
		}
		// porcupine's intervals are closed: a return and a call at the same instant are concurrent. Doubled times, with the end
		// one earlier, order an end at an instant before a return at that instant.
		ops = append(ops, porcupine.Operation{ClientId: c.Client, Input: event{take: true, key: c.Key, who: c.Value, fence: c.Fence}, Call: 2 * int64(c.Start), Return: 2 * int64(c.Got)})
		if exclusive {
			ops = append(ops, porcupine.Operation{ClientId: c.Client, Input: event{key: c.Key, who: c.Value}, Call: 2*int64(end) - 1, Return: 2*int64(end) - 1})
		}
	}
	return ops, exclusive
}

// porcupinePatience limits porcupine's search, which takes exponential time if a history is both long and wrong.
const porcupinePatience = 20 * time.Second

func register(h *History) (bad []Violation) {
	ops, exclusive := h.operations()
	if porcupine.CheckOperationsTimeout(model(exclusive), ops, porcupinePatience) != porcupine.Illegal {
		return nil
	}
	promise := "I2"
	if exclusive {
		promise = "I1 and I2"
	}
	return []Violation{{At: h.Length, Promise: promise, Key: -1, Text: "porcupine finds no order of the acquisitions with one holder at a time and increasing fences"}}
}

// Picture writes porcupine's drawing of the history to a new file and returns its path.
func (h *History) Picture() (string, error) {
	ops, exclusive := h.operations()
	m := model(exclusive)
	_, info := porcupine.CheckOperationsVerbose(m, ops, porcupinePatience)
	f, err := os.CreateTemp("", "redlock-sim-*.html")
	if err != nil {
		return "", err
	}
	defer f.Close()
	return f.Name(), porcupine.Visualize(m, info, f)
}
