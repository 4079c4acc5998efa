// Package redlocktest is a cluster of independent Redis masters inside the test's own process: N miniredis
// servers behind an in-memory network whose faults a test switches on and off. It needs no ports, no containers and no
// redis-server.
//
// It works in real time and inside a [testing/synctest] bubble. In a bubble every clock is the bubble's, so that a
// minute of lock life takes milliseconds, and a run is a function of its seed: each segment's latency is a hash of the
// seed, the link, the direction, which command is sent and when, at the grain of a nanosecond, so no two things happen at one
// instant and the order in which the scheduler runs goroutines decides nothing. Outside a bubble nothing
// is delayed unless [Node.Delay] says so.
//
// A test of what a hung minority costs, and of what it does after its clients have long given up:
//
//	func TestHungMinority(t *testing.T) {
//		redlocktest.Bubble(t, func(t *testing.T) {
//			c := redlocktest.New(t, 3)
//			clients := c.Clients() // for the code under test
//			for _, client := range clients {
//				client.Ping(t.Context()) // connects: a new connection would hang at its HELLO and send nothing else
//			}
//			hung := c.Node(2)
//			hung.Hang()
//			yes := 0
//			for _, client := range clients {
//				ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
//				if client.SetNX(ctx, "jobs/42", "me", time.Minute).Err() == nil {
//					yes++
//				}
//				cancel()
//			}
//			if yes != 2 {
//				t.Errorf("%d nodes said yes, want 2", yes)
//			}
//			time.Sleep(10 * time.Second) // virtual
//			hung.Resume()
//			time.Sleep(time.Millisecond)
//			if value, _ := hung.Get("jobs/42"); value != "me" {
//				t.Error("the node forgot what lay in its socket")
//			}
//		})
//	}
//
// # What is like a real server and what is not
//
// A node has a clock of its own ([Node.SetClockRate], [Node.JumpClock]) and keys expire by it, without any help of
// the test. A hung node ([Node.Hang]) behaves as a stopped process does: its kernel goes on accepting connections and
// bytes, and when it wakes it executes what lies there, also from connections whose client has long gone. A cut network
// ([Node.Partition]) holds segments and delivers them after the heal, as retransmission does. Both are how a SET
// arrives after the DEL that was meant to undo it. A restart ([Node.Restart]) forgets scripts and changes the run_id.
// SET with NX and GET, INFO and the texts of errors from inside scripts are those of Redis 7.0.
//
// Not like a real server: a key is gone at exactly its ttl (a real one keeps it up to a millisecond longer); there is no
// eviction, no persistence, no ACL and no CONFIG; Lua prints large numbers in full, where a real server's ".." and tostring
// round them to 14 digits, so a script that prints a fencing token passes here and fails there. A connection is no
// file descriptor, so go-redis cannot see that an idle one was reset before it uses it: after a reset each pooled
// connection costs one error.
//
// go-redis's own log lines are switched off by [New] (for the whole process): the failures they report are what the test is about.
package redlocktest
