package nodes_test

import (
	"testing"

	"github.com/seed-ce352c9b/redlock/internal/harness"
	"github.com/seed-ce352c9b/redlock/redlocktest"
)

// Whatever a server may refuse comes before what grants or queues, or the reply says that something may have been
// stored. TestRealRefusals asks the same of a server that has users.
//
// Attack 44.
func TestWhatIsRefusedGrantsNothingAndQueuesNothing(t *testing.T) {
	t.Parallel()
	harness.CheckRefusals(t, harness.Rounds(0, 1) > 0, func(t *testing.T, f func(t *testing.T, n harness.RefusingNode)) {
		t.Parallel()
		redlocktest.Bubble(t, func(t *testing.T) {
			s, refused := harness.NewStage(t, 1), ""
			f(t, harness.RefusingNode{
				Do: func(commands ...[]string) (replies []any) {
					for _, args := range commands {
						replies = append(replies, s.Do(0, args...))
					}
					return replies
				},
				Client: s.Cluster.Clients()[0],
				Refuse: func(command string) {
					s.Node(0).FailCommand(refused, "")
					// As from Redis 7.2 on. What 7.0 says, miniredis does not pass on as it is.
					s.Node(0).FailCommand(command, "NOPERM ACL failure in script: User locks has no permissions to run the '"+command+"' command")
					refused = command
				},
			})
		})
	})
}
