package sim

import (
	"time"

	"pgregory.net/rapid"
)

// drawn makes choices with rapid, so that they can shrink.
type drawn struct{ t *rapid.T }

func (d drawn) IntN(n int, what string) int { return rapid.IntRange(0, n-1).Draw(d.t, what) }

// Draw draws a short schedule of a profile. Tasks and faults are separate lists, so that a failing schedule shrinks to the
// ones that matter.
func Draw(t *rapid.T, p *Profile) *Schedule {
	d := drawn{t}
	sch := environment(d, p, uint64(d.IntN(1<<16, "seed")))
	at := time.Duration(0)
	task := rapid.Custom(func(t *rapid.T) Task {
		d := drawn{t}
		return p.task(d, sch, gap(d, p.Every))
	})
	for _, task := range rapid.SliceOfN(task, 1, 16).Draw(t, "tasks") {
		at += task.At // up to here, At is the time since the previous task
		task.At = at
		sch.Tasks = append(sch.Tasks, task)
	}
	if len(p.Faults) > 0 {
		at = 0
		fault := rapid.Custom(func(t *rapid.T) Fault {
			d := drawn{t}
			return p.fault(d, sch, gap(d, p.FaultEvery))
		})
		for _, fault := range rapid.SliceOfN(fault, 0, 12).Draw(t, "faults") {
			at += fault.At
			fault.At = at
			sch.Faults = append(sch.Faults, fault)
		}
	}
	if p.Crowd > 0 || p.Several {
		sch.crowdAtEnd()
	}
	return sch
}

// crowdAtEnd makes two callers of each client wait for a key, or for several, at once, when the effects of all faults are over. The last task
// gives them time: liveness is judged until it begins.
func (s *Schedule) crowdAtEnd() {
	const each = 100 * ms
	at := s.Ends() + max(heardAgain, deadEntries)
	for i := range 2 * len(s.Clients) {
		t := Task{At: at, Client: i % len(s.Clients), Do: Acquire, TTL: 5 * each, Wait: patient, Hold: each}
		if s.Several {
			s.wantSeveral(&t, i)
		}
		s.Tasks = append(s.Tasks, t)
	}
	s.Tasks = append(s.Tasks, Task{At: at + 10*time.Second, Do: Inspect, TTL: each, Wait: each})
}
