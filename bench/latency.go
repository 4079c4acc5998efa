package main

import "context"

const latencyBlock = 50 // cycles in a row before the next one's turn

// latency is how long one caller alone takes. Blocks are short, so that a machine that is fast for a second is so for all.
func latency(ctx context.Context, b *bench) error {
	cs, err := contenders(addrs(b.servers), nameFloor, nameOurFloor, nameOurs, nameRedsync, nameFailFast, nameLock, nameBare)
	if err != nil {
		return err
	}
	defer closeAll(cs)
	for _, c := range cs {
		runCycles(ctx, c, c.name, 1, 100)
	}
	for rep := range b.reps {
		b.progress("repetition %d of %d", rep+1, b.reps)
		all := make(map[string]*timing)
		for block := range b.latencyBlocks {
			for _, c := range rotate(cs, rep+block) {
				if ctx.Err() != nil {
					return ctx.Err()
				}
				t := runCycles(ctx, c, c.name, 1, latencyBlock)
				if all[c.name] == nil {
					all[c.name] = t
				} else {
					all[c.name].join(t)
				}
			}
		}
		for _, c := range cs {
			b.report.halves("latency", c.name, "1", all[c.name])
		}
	}
	return nil
}

var halves = []string{mAcquire50, mAcquire99, mRelease50, mRelease99}

func latencyTables(r *report) []table {
	rows := [][]string{append([]string{""}, halves...)}
	ratios := [][]string{append([]string{""}, halves...)}
	for _, c := range r.subjects("latency", mAcquire50) {
		row := []string{c}
		ratio := []string{"redlock / " + c}
		for _, m := range halves {
			s := r.find("latency", c, "1", m)
			row = append(row, s.spread("%.3f"))
			ratio = append(ratio, r.find("latency", nameOurs, "1", m).over(s).spread("%.2f"))
		}
		rows = append(rows, row)
		if c != nameOurs {
			ratios = append(ratios, ratio)
		}
	}
	return []table{
		{"latency", "One goroutine, nobody else", rows},
		{"latency-ratio", "The same, as ratios", ratios},
	}
}
