package mutants

// A mutant is the library with one rule taken out, as a patch of its source: production code carries no hooks for
// this. A directed test has to catch it, or, where none is named, random simulation on one of its profiles.
type mutant struct {
	name     string
	rule     string // that is taken out
	patches  []patch
	profiles string // where random simulation looks for it; empty: it cannot see it
	why      string // it cannot
	test     string // directed; fails with it each time
	pkg      string // of the test, such as "./internal/lane"; empty: the first of testPackages that has it
}

// A patch replaces the one place in a file where old stands.
type patch struct{ file, old, new string }

var mutants = []mutant{
	{
		name: "no-drift", rule: "the validity is shortened by the drift", profiles: "drift",
		patches: []patch{{"drift.go", "return ttl - driftOf(ttl, drift) - expiryGrain", "return ttl - 0*driftOf(ttl, drift) - expiryGrain"}},
	},
	{
		name: "late-start", rule: "the validity counts from before the first request is sent", profiles: "slow,network",
		patches: []patch{{"lock.go", "ttl: e.ttl, start: b.Start, valid: valid}", "ttl: e.ttl, start: l.now(), valid: valid}"}},
	},
	{
		name: "extend-late-start", rule: "the validity after an extension counts from before its first request is sent", profiles: "extend,slow",
		patches: []patch{{"extend.go", "k.start, k.valid = b.Start, validity(", "k.start, k.valid = k.l.now(), validity("}},
		test:    "TestAnExtensionCountsFromBeforeItsFirstRequest",
	},
	{
		name: "release-any", rule: "a release or rollback deletes a key only if it has our value", profiles: "calm,network",
		patches: []patch{{"internal/wire/lua/release.lua", "if held == ARGV[1] then", "if held then"}},
	},
	{
		name: "refused-is-anothers", rule: "a reply that is an error where the value was expected does not say that another holder has the lock", profiles: "edges",
		patches: []patch{{"internal/wire/lua/release.lua", "if type(held) == 'table' and not string.find(held.err, '^%-?WRONGTYPE') then return held end", ""}},
		test:    "TestScriptRelease",
	},
	{
		name: "refused-after", rule: "a release executes the commands that the server may refuse before it deletes the key", why: "the failed release is sent again and then succeeds, and no judge looks at its first error",
		patches: []patch{
			{"internal/wire/lua/release.lua", "if KEYS[3] and redis.call('PTTL', KEYS[3]) < (tonumber(ARGV[5]) or 86400000) then redis.call('PEXPIRE', KEYS[3], ARGV[6] or '90000000') end\n", ""},
			{"internal/wire/lua/release.lua", "local most = tonumber(ARGV[4]) or 2", "if KEYS[3] and redis.call('PTTL', KEYS[3]) < (tonumber(ARGV[5]) or 86400000) then redis.call('PEXPIRE', KEYS[3], ARGV[6] or '90000000') end\nlocal most = tonumber(ARGV[4]) or 2"},
		},
		test: "TestScriptRelease",
	},
	{
		name: "joint-any", rule: "a joint release deletes only keys that have our values", profiles: "calm,network",
		patches: []patch{{"internal/wire/lua/releases.lua", "if held[i] == ARGV[i + 1] then", "if held[i] then"}},
		test:    "TestScriptReleases",
	},
	{
		name: "joint-believed", rule: "only a deletion in the joint release itself counts as a release", profiles: "calm,skew",
		patches: []patch{{"internal/wire/joint.go", "return Reply{Answer: Unknown, Sent: true}, true", "return Reply{Answer: Yes, Sent: true}, false"}},
		test:    "TestVerdictOfARelease",
	},
	{
		name: "joint-refused-after", rule: "a joint release executes the commands that the server may refuse before it deletes keys", why: "each release is then sent on its own and finds its key missing, which counts as released before Until",
		patches: []patch{
			{"internal/wire/lua/releases.lua", "local queued = queues > 0", "for i = 1, locks do if held[i] == ARGV[i + 1] then redis.call('DEL', KEYS[i]) end end\nlocal queued = queues > 0"},
		},
		test: "TestScriptReleases",
	},
	{
		name: "joint-refusal-believed", rule: "the releases of a joint script that failed are sent one by one only if the node certainly executed nothing", why: "no simulated node replies with an error to a script that it has executed",
		patches: []patch{{"internal/wire/joint.go", "return rep, rep.Sent && !rep.Silent && notExecuted(rep.Err.Text)", "return rep, rep.Sent && !rep.Silent"}},
		test:    "TestJointReleases",
	},
	{
		name: "joint-lost", rule: "a joint release without a reply is sent again until it is answered", profiles: "network,crash,minority",
		patches: []patch{{"internal/wire/joint.go", "rep = failed(j.questions[n].Kind, j.err)\n", "if rep = failed(j.questions[n].Kind, j.err); rep.Silent {\n\t\treturn Reply{Answer: Yes, Sent: true}, false\n\t}\n"}},
		test:    "TestJointReleases",
	},
	{
		name: "joint-immortal", rule: "a joint release gives the registers a ttl", profiles: "calm,skew",
		patches: []patch{{"internal/wire/lua/releases.lua", "if redis.call('PTTL', KEYS[i]) < least then", "if false then"}},
		test:    "TestScriptReleases",
	},
	{
		name: "joint-last", rule: "the joint script is the first command of its pipeline", why: "an acquire in the same pipeline fails and is repeated, which breaks no promise",
		patches: []patch{{"internal/lane/joint.go", "\tb.cmds = append(b.cmds, j.Command(j.asText))\n", ""}, {"internal/lane/batch.go", "\terr = b.exchange(ln.Node)\n", "\tfor n := range b.joints {\n\t\tif j := &b.joints[n]; j.Len() > 0 {\n\t\t\tb.cmds = append(b.cmds, j.Command(j.asText))\n\t\t}\n\t}\n\terr = b.exchange(ln.Node)\n"}},
		test:    "TestAJointReleaseGoesBeforeWhatWasQueuedEarlier",
	},
	{
		name: "joint-quiet", rule: "a joint release tells the first two of a queue", why: "waiters look all the same, later",
		patches: []patch{{"internal/wire/lua/releases.lua", "if done[i] == '1' then done[i] = announce(", "if false then done[i] = announce("}},
		test:    "TestScriptReleases",
	},
	{
		name: "joint-told-unknown", rule: "a joint release says whether a waiter was notified", why: "who had a turn is not judged without Fair",
		patches: []patch{
			{"internal/wire/lua/releases.lua", "return told > 0 and '2' or '1'", "return '1'"},
			{"internal/wire/lua/releases.lua", "if told == 2 then return '2' end", "if told == 2 then return '1' end"},
		},
		test: "TestScriptReleases",
	},
	{
		name: "joint-split", rule: "releases are joined only for clients that send a script to a single server", why: "all simulated nodes are single servers",
		patches: []patch{{"internal/lane/lane.go", "\tif direct {\n\t\tln.minJoint", "\tif true {\n\t\tln.minJoint"}},
		test:    "TestOnlyPlainClientsJoin",
	},
	{
		name: "extends-any", rule: "a joint extension extends only keys that have our values", profiles: "extend,slow",
		patches: []patch{{"internal/wire/lua/extends.lua", "if held[i] == ARGV[3 * i - 2] then", "if held[i] then"}},
		test:    "TestScriptExtends",
	},
	{
		name: "extends-shorter", rule: "a joint extension never shortens the ttl of a key", why: "all ttls of a key are alike unless it is adopted",
		patches: []patch{{"internal/wire/lua/extends.lua", "if redis.call('PTTL', KEYS[i]) <= tonumber(ttl) then", "if true then"}},
		test:    "TestScriptExtends",
	},
	{
		name: "extends-lower", rule: "a joint extension never lowers a register", profiles: "extend,rolling",
		patches: []patch{{"internal/wire/lua/extends.lua", "register, 'GT', fence", "register, fence"}},
		test:    "TestScriptExtends",
	},
	{
		name: "extends-immortal", rule: "a joint extension gives the registers a ttl", profiles: "extend,rolling",
		patches: []patch{{"internal/wire/lua/extends.lua", "if redis.call('PTTL', register) < least then", "if false then"}},
		test:    "TestScriptExtends",
	},
	{
		name: "extends-bare", rule: "a joint extension that does not raise a register checks that the register exists", profiles: "rolling",
		patches: []patch{{"internal/wire/lua/extends.lua", "if all or redis.call('EXISTS', register) == 1 then", "if true then"}},
		test:    "TestScriptExtends",
	},
	{
		name: "extends-healed", rule: "an extension raises the register of a node that was healed", why: "the fault shows only if a failed attempt of a client whose clock is behind creates the register again",
		patches: []patch{{"fence.go", "	k.registers &^= doubt\n", ""}},
		test:    "TestJointExtensions",
	},
	{
		name: "extends-never-again", rule: "an extension raises all registers at least every half hour", why: "no simulated lock is held for a day, after which registers expire",
		patches: []patch{{"fence.go", "now.Since(k.registersAt) >= k.raiseAgain()", "false"}},
		test:    "TestJointExtensions",
	},
	{
		name: "extend-any", rule: "an extension extends a key only if it has our value", profiles: "extend,slow",
		patches: []patch{{"internal/wire/lua/extend.lua", "if held ~= ARGV[1] then return 0 end", ""}},
		test:    "TestAnothersKeyIsNeverExtended",
	},
	{
		name: "adopt-any", rule: "an adoption replaces only the given value", profiles: "adopt",
		patches: []patch{{"internal/wire/lua/adopt.lua", "if held ~= ARGV[1] then return {0, held} end", ""}},
		test:    "TestScriptAdopt",
	},
	{
		name: "half", rule: "a majority of N nodes is N/2+1", profiles: "calm,network",
		patches: []patch{{"internal/quorum/tally.go", "func Majority(n int) int { return n/2 + 1 }", "func Majority(n int) int { return max(n/2, 1) }"}},
	},
	{
		name: "half-of-even", rule: "a majority of four nodes is three", profiles: "calm,network",
		patches: []patch{{"internal/quorum/tally.go", "func Majority(n int) int { return n/2 + 1 }", "func Majority(n int) int { return (n + 1) / 2 }"}},
	},
	{
		name: "reachable", rule: "a majority is one of the configured nodes, not of those that answer", profiles: "network,crash",
		patches: []patch{{"internal/quorum/tally.go", "{ return Majority(t.N) }", "{ return Majority(t.N - t.Unknown) }"}},
		test:    "TestClientsWithDisjointMinoritiesGoOnAfterTheHeal",
	},
	{
		name: "overwrite", rule: "an acquire sets a key only if it does not exist", profiles: "calm",
		patches: []patch{{"internal/wire/question.go", `name.args.full, value, "nx", "get", "px"`, `name.args.full, value, "get", "px"`}},
	},
	{
		name: "no-rollback", rule: "a failed attempt is rolled back", profiles: "network,life",
		patches: []patch{{"acquire.go", "\t\t\tl.undo(e.tail, undo())\n", ""}},
		test:    "TestAFailedAttemptIsUnlockedOnAllNodesThatMayHoldIt",
	},
	{
		name: "rollback-yes-only", rule: "a failed attempt is also rolled back on nodes that did not answer", profiles: "network,life",
		patches: []patch{{"internal/lane/residue.go", "case k.Stores() && rep.Stored:", "case k.Stores() && rep.Stored && !rep.Silent:"}},
		test:    "TestAbandonedAttemptIsOwedAlthoughTheContextIsDone",
	},
	{
		name: "rollback-on-ctx", rule: "a failed attempt is rolled back even if the caller's ctx is done", profiles: "life,network",
		patches: []patch{{"acquire.go", "\t\t\tl.undo(e.tail, undo())\n", "\t\t\tif ctx.Err() == nil {\n\t\t\t\tl.undo(e.tail, undo())\n\t\t\t}\n"}},
		test:    "TestACallThatIsCancelledMidAttemptReturnsAtOnceAndIsRolledBack",
	},
	{
		name: "observed-late", rule: "Trace.Round is called for an acquisition before the lock exists", profiles: "edges",
		patches: []patch{
			{"acquire.go", "\tl.observe(ctx, b, e) // while there is no lock yet: whoever panics here never gets it\n", ""},
			{"acquire.go", "\t\tl.ahead.Note(e.name, b.Start.Wall, token)\n\t}\n\treturn k, nil\n", "\t\tl.ahead.Note(e.name, b.Start.Wall, token)\n\t}\n\tl.observe(ctx, b, e)\n\treturn k, nil\n"},
		},
		test: "TestAPanicInACallbackLeavesNoLock",
	},
	{
		name: "unowned", rule: "a lock is released if Trace.End panics before the caller gets it", profiles: "edges",
		patches: []patch{{"trace.go", "if !returned {", "if !returned && false {"}},
		test:    "TestAPanicInATraceLeavesNoLock",
	},
	{
		name: "no-resign-pause", rule: "a leader that resigned pauses before it campaigns again", why: "no promise says which candidate wins",
		patches: []patch{{"lead.go", "if l.pause(ctx, resignPause) != nil {", "if ctx.Err() != nil || l.isClosed() {"}},
		test:    "TestALeaderThatResignsLetsOthersWin",
	},
	{
		name: "unannounced", rule: "the begin of a term is announced to those who watch", why: "Watch promises no time",
		patches: []patch{{"lead.go", "\t\tl.announce(lock)\n", ""}},
		test:    "TestAWatcherIsToldOfEachLeader",
	},
	{
		name: "leads-unheld", rule: "a leader that lost its lock campaigns again", why: "no promise says how many candidates there are",
		patches: []patch{{"lead.go", "released || lock.kept() {", "true {"}},
		test:    "TestLeadEnds",
	},
	{
		name: "watcher-deaf", rule: "an announcement wakes watchers", why: "Watch also polls and promises no time",
		patches: []patch{{"internal/queue/entry.go", "\tw.wakeWatchers(channel)\n", ""}},
		test:    "TestAWatcherIsToldOfEachLeader",
	},
	{
		name: "traced-ctx", rule: "a call ends with the caller's ctx, not with the context that Trace.Start returned", profiles: "edges",
		patches: []patch{{"trace.go", "c.ctx = tracedCtx{ctx, context.WithoutCancel(traced)}", "c.ctx = traced"}},
		test:    "TestATracerNeitherEndsNorProlongsACall",
	},
	{
		name: "ends-early", rule: "the end of a lock is reported after its acquisition", why: "the judges do not look at events",
		patches: []patch{{"trace.go", "if !k.acquiredReported {", "if false {"}},
		test:    "TestTheEndOfALockIsToldAfterItsAcquisition",
	},
	{
		name: "expired-untold", rule: "the end of a lock that expires, and that nobody looks at, is reported", why: "the judges do not look at events",
		patches: []patch{{"close.go", "\t\t\tk.reportExpired()\n", ""}},
		test:    "TestLocksThatAreHeldCanBeCounted",
	},
	{
		name: "acquired-kept", rule: "a lock is released if the callback panics that is told of its acquisition", why: "no event of the simulation panics on a caller's goroutine",
		patches: []patch{{"trace.go", "if !told {", "if !told && false {"}},
		test:    "TestAPanicAtAnAcquisitionLeavesNoLock",
	},
	{
		name: "ends-twice", rule: "the end of a lock is reported once", why: "the judges do not look at events",
		patches: []patch{{"trace.go", "if k.endReported ||", "if"}},
		test:    "TestEvents",
	},
	{
		name: "told-under-mutex", rule: "events about nodes are reported while no mutex is held", why: "simulated callbacks never call the Locker",
		patches: []patch{{"internal/lane/news.go", "\t\tln.mu.Unlock()\n\t\tfunc() {\n\t\t\tdefer func() { ln.mu.Lock(); ln.telling = false }()\n\t\t\tln.Report(n)\n\t\t}()\n", "\t\tln.Report(n)\n\t\tln.telling = false\n"}},
		test:    "TestEvents",
	},
	{
		name: "half-asked", rule: "a question reaches the other nodes even if a callback panics", why: "a callback rarely runs in the goroutine that asks: nodes must be down and fail at once",
		patches: []patch{{"internal/lane/call.go", "\t\tif i < n {\n\t\t\tEach(i, n, f)\n\t\t}\n", ""}},
		test:    "TestAPanicInObserveDoesNotStopAQuestionHalfWay",
	},
	{
		name: "release-overtakes", rule: "a release is sent to a node after the earlier requests of the same lock to that node", profiles: "network",
		patches: []patch{{"release.go", "b.SendRelease(earlier, next, prev)", "_ = prev; b.SendRelease(earlier, next)"}},
		test:    "TestACleanUpGoesAfterWhatItUndoes",
	},
	{
		name: "not-owed", rule: "a clean-up that was not answered is sent again", profiles: "network,crash,minority",
		patches: []patch{{"internal/lane/order.go", "ln.owe(c, 0)", "_ = c"}},
		test:    "TestRollbackIsSentAgainUntilItIsAnswered",
	},
	{
		name: "no-ping", rule: "the clean-up of an unanswered command is sent only after the node has answered a PING", why: "the fault shows only if a rollback on a new connection overtakes a command that an old connection delivers later",
		patches: []patch{{"internal/lane/order.go", "if c.mayBeOvertaken || ln.owed", "if false || ln.owed"}},
		test:    "TestACleanUpOfWhatHadNoAnswerGoesOutOnlyAfterAPing",
	},
	{
		name: "stale-ping", rule: "only a PING that was sent after the last timeout puts a node back into use", why: "the next timeout takes the node out of use again, and the faults of a minority cost nothing",
		patches: []patch{{"internal/lane/probe.go", "ln.stuck >= maxStuck || ln.downSince.After(p.sent)", "ln.stuck >= maxStuck"}},
		test:    "TestOnlyAPingSentAfterTheLastTimeoutClearsANode",
	},
	{
		name: "no-second-look", rule: "a clean-up that finds nothing is repeated while the command that it undoes may still arrive", why: "the fault shows only if a command arrives on an old connection after its clean-up has been answered",
		patches: []patch{{"internal/lane/order.go", "ln.owe(c, lookAgain)", "_ = lookAgain"}},
		test:    "TestSecondLookFindsTheAcquireThatCameAfterTheCleanUp",
	},
	{
		name: "retries", rule: "go-redis never sends a command of this library twice", why: "the simulated clients do not retry",
		patches: []patch{{"internal/wire/command.go", "func (*Command) NoRetry() bool { return true }", "func (*Command) NoRetry() bool { return false }"}},
		test:    "TestClientsThatRetryDoNotSendOurCommandsAgain",
	},
	{
		name: "replica-votes", rule: "a replica has no vote", why: "the simulation has no replicas",
		patches: []patch{{"internal/lane/batch.go", "case replica != nil && !c.Question.Kind.Cleans():", "case replica != nil && false:"}},
		test:    "TestAReplicaIsNamedAndItsVotesDoNotCount",
	},
	{
		name: "panic-through", rule: "a panic in a client counts as a failed answer of one node", profiles: "edges",
		patches: []patch{{"internal/wire/panics.go", "v := recover()", "var v any"}},
		test:    "TestAPanicOfAClientIsOneNodesFailedAnswer",
	},
	{
		name: "panic-believed", rule: "replies that a client read before it panicked are ignored", why: "simulated clients panic before they send, or after they have read all replies",
		patches: []patch{{"internal/wire/command.go", "panicked := exec.(*PanicError); panicked {", "panicked := exec.(*PanicError); panicked && false {"}},
		test:    "TestAPanicOfAClientIsOneNodesFailedAnswer",
	},
	{
		name: "ring-wrapped", rule: "a Ring is recognised inside a wrapper", why: "the simulation has no Ring",
		patches: []patch{{"internal/lane/client.go", "if v.Type().Field(i).Anonymous && !embeddedIn(", "if v.Type().Field(i).Anonymous && depth < 0 && !embeddedIn("}},
		test:    "TestWrappedClientsAreRecognised",
	},
	{
		name: "extend-after-until", rule: "an extension counts only if it is complete before the old Until", why: "keys expire within milliseconds of Until, so answers rarely come between the two",
		patches: []patch{{"extend.go", "case left <= 0:\n\t\t// Also where", "case left <= -time.Hour:\n\t\t// Also where"}},
		test:    "TestAnExtensionThatIsCompleteAfterTheOldUntilIsLost",
	},
	{
		name: "extend-when-sent", rule: "only an extension that was answered moves Until", profiles: "extend,slow",
		patches: []patch{{"extend.go", "\tk.ext = x\n", "\tk.ext, k.start = x, now\n"}},
		test:    "TestAnExtensionThatReachesAMinorityLeavesTheOldUntil",
	},
	{
		name: "heal-alone", rule: "a node is healed only if a majority of the same round has our value", why: "the fault shows only if an extension without a majority heals a node whose vote another client then needs",
		patches: []patch{{"internal/quorum/call.go", "c.Reply.Missing && b.tally.Yes >= b.tally.Need()", "c.Reply.Missing"}},
		test:    "TestANodeThatForgotGetsTheLockBackAndCountsFromTheNextRoundOn",
	},
	{
		name: "heal-counts", rule: "a healed node counts only from the next round on", profiles: "rolling,wild-data,extend",
		patches: []patch{{"quorum.go", "\tcase t.Yes >= t.Need():\n\t\treturn stillOurs", "\tcase t.Yes > 0 && t.Yes+t.Missing >= t.Need():\n\t\treturn stillOurs"}, {"internal/quorum/call.go", "c.Reply.Missing && b.tally.Yes >= b.tally.Need()", "c.Reply.Missing && b.tally.Yes > 0 && b.tally.Yes+b.tally.Missing >= b.tally.Need()"}},
		test:    "TestALockThatAMajorityForgotIsLostAndNotTakenAnew",
	},
	{
		name: "apart", rule: "a vote counts as fenced only if the same node also stored our value", why: "the fault shows only if a node refuses the lock but moves its register, in a round that the other nodes win",
		patches: []patch{
			{"internal/wire/reply.go", "r.Stored = r.Holder == q.Value\n", "r.Stored = r.Holder == q.Value\n\t\tm, _ := result(zadd, exec)\n\t\tr.Fenced = m == int64(1)\n"},
			{"internal/quorum/call.go", "\tc.Voted = true\n\tswitch", "\tc.Voted = true\n\tif c.Reply.Answer == wire.No && c.Reply.Fenced {\n\t\tb.tally.Fenced++\n\t}\n\tswitch"},
			{"quorum.go", "case t.Fenced >= t.Need():\n\t\treturn acquireFenced", "case t.Fenced >= t.Need() && t.Yes >= t.Need():\n\t\treturn acquireFenced"},
		},
		test: "TestValueAndTokenAreCountedOnTheSameNodes",
	},
	{
		name: "raise-any", rule: "a raise changes a register only where the key has our value", why: "the fault shows only if a key changes hands between an acquire and its raise",
		patches: []patch{{"internal/wire/lua/raise.lua", "if held ~= ARGV[1] then return {0} end", ""}},
		test:    "TestARaiseDoesNotCountANodeThatIsNotOursAnyMore",
	},
	{
		name: "equal-counts", rule: "a register that already stands at the proposed token does not count", profiles: "skew,slow",
		patches: []patch{{"internal/wire/reply.go", "\tcase moved == int64(1):\n\t\tr.Fenced = true", "\tcase moved == int64(1) || moved == int64(0):\n\t\tr.Fenced = true"}},
	},
	{
		name: "no-raise", rule: "a majority that has our value is not enough without a common token", profiles: "skew,slow",
		patches: []patch{{"acquire.go", "token, err = l.raise(ctx, e, b)", "_ = l.raise"}},
	},
	{
		name: "raise-equal-counts", rule: "in a raise only a register that moved counts", profiles: "skew,slow",
		patches: []patch{{"internal/wire/lua/raise.lua", "'CH', ARGV[2], 'f') == 1 then", "'CH', ARGV[2], 'f') >= 0 then"}},
	},
	{
		name: "lead-refuses", rule: "remembered registers never cause an acquisition to be refused", why: "no simulated register is close to 2^53",
		patches: []patch{{"internal/fence/ahead.go", "case token <= start || token > wire.MaxToken-aheadRoom:", "case token <= start:"}},
		test:    "TestRegistersThatWereRemovedAreForgotten",
	},
	{
		name: "raise-uses-up", rule: "a raise uses only a small part of the remaining tokens", why: "no simulated register is close to 2^53",
		patches: []patch{{"internal/fence/fence.go", "return seen + min(headroom, max(room/raisePart, 1))", "return seen + min(headroom, room)"}},
		test:    "TestRegistersThatWereRemovedAreForgotten",
	},
	{
		name: "shrink", rule: "registers only grow", profiles: "skew",
		patches: []patch{{"internal/wire/question.go", `q.add("zadd", name.args.fence, "gt", "ch", proposal, "f")`, `q.add("zadd", name.args.fence, "ch", proposal, "f")`}},
	},
	{
		name: "mortal-register", rule: "a register outlives its lock", profiles: "skew",
		patches: []patch{
			{"internal/wire/time.go", "given = min(CeilMillis(max(ttl, f.Slack())+f.duration()), math.MaxInt32)\n\treturn given - CeilMillis(f.Slack()), given", "given = CeilMillis(ttl / 4)\n\treturn given, given"},
			{"internal/wire/time.go", "if f.isUsual() && ttl <= f.Slack() {", "if false {"},
			{"internal/wire/time.go", "bool { return ttl <= f.Slack() }", "bool { return false && ttl <= f.Slack() }"},
		},
	},
	{
		name: "fence-life-ignored", rule: "registers live for Options.FenceLife", why: "no judge asks for how long",
		patches: []patch{{"redlock.go", "\tl.names.Life = wire.FenceLife(opt.FenceLife)\n", ""}},
		test:    "TestRegistersLiveForTheFenceLife",
	},
	{
		name: "fence-life-alone", rule: "joint scripts give registers the life of Options.FenceLife, too", why: "no judge asks for how long",
		patches: []patch{{"internal/wire/joint.go", "return append(a, life.args(0)...)", "return a"}, {"internal/wire/joint.go", "if life.isUsual() {", "if true {"}},
		test:    "TestRegistersLiveForTheFenceLife",
	},
	{
		name: "fence-life-mixed", rule: "only what gives registers the same life joins in one script", why: "no judge asks for how long",
		patches: []patch{{"internal/wire/time.go", "bool { return ttl <= f.Slack() }", "bool { return ttl <= f.Slack() || !f.isUsual() }"}},
		test:    "TestRegistersLiveForTheFenceLife",
	},
	{
		name: "raised-too-late", rule: "the shorter registers live, the more often extensions raise them", why: "no judge asks for how long they live",
		patches: []patch{{"fence.go", "return k.name.Life.Slack() / 2 }", "_ = k; return 30 * time.Minute }"}, {"extend.go", "ttl+k.raiseAgain() <= k.name.Life.Slack()", "ttl <= time.Hour/2"}},
		test:    "TestALockHeldForLongKeepsItsRegisters",
	},
	{
		name: "immortal-register", rule: "each release and rollback gives the register a ttl", profiles: "calm,skew",
		patches: []patch{{"internal/wire/lua/release.lua", "if KEYS[3] and redis.call('PTTL', KEYS[3]) < (tonumber(ARGV[5]) or 86400000) then", "if false then"}},
		test:    "TestARegisterOutlivesTheLastWordOnItsLockByAboutADay",
	},
	{
		name: "restore-immortal", rule: "an adoption and its undoing give the register a ttl", why: "the simulation adopts only locks whose registers already have a ttl",
		patches: []patch{
			{"internal/wire/lua/adopt.lua", "if redis.call('PTTL', KEYS[2]) < tonumber(ARGV[5]) then redis.call('PEXPIRE', KEYS[2], ARGV[6]) end\n", ""},
			{"internal/wire/lua/restore.lua", "if redis.call('PTTL', KEYS[2]) < tonumber(ARGV[3]) then redis.call('PEXPIRE', KEYS[2], ARGV[4]) end\n", ""},
		},
		test: "TestEveryRegisterIsGivenALife",
	},
	{
		name: "register-overtaken", rule: "the command that gives a register a ttl waits for the acquire that it follows, and is repeated while that may still come", profiles: "laggards",
		patches: []patch{{"internal/lane/call.go", "same || c.Question.Kind == wire.AskExpireRegister && !c.AfterAttempt", "same"}},
		test:    "TestARegisterThatIsRaisedLateIsGivenALife",
	},
	{
		name: "register-late", rule: "so it is if that acquire was given up before", profiles: "laggards",
		patches: []patch{{"close.go", "k.l.registers.Expire(k.name, k.ttl, nodes, left, prev)", "k.l.registers.Expire(k.name, k.ttl, nodes, lane.Residues{}, prev)"}},
		test:    "TestARegisterThatIsRaisedLateIsGivenALife",
	},
	{
		name: "lives-once", rule: "registers that failed attempts raise again get a ttl again", profiles: "edges",
		patches: []patch{{"internal/lane/registers.go", "\t\tif g.again != 0 {\n", "\t\tif false {\n"}},
		test:    "TestEveryRegisterIsGivenALife",
	},
	{
		name: "lives-at-close", rule: "Close gives a ttl to registers that failed attempts raised", why: "the fault shows only if nodes forget a register between two failed attempts that a Close follows at once",
		patches: []patch{{"close.go", "\tl.registers.Close()\n", ""}},
		test:    "TestEveryRegisterIsGivenALife",
	},
	{
		name: "lives-unbounded", rule: "the number of remembered registers is bounded", why: "no simulation uses thousands of keys",
		patches: []patch{{"internal/lane/registers.go", "if g == nil && !r.closed && len(r.keys) < maxRegisters {", "if r.closed {"}},
		test:    "TestRememberedLivesAreBounded",
	},
	{
		name: "asked-apart", rule: "the questions for several keys travel to a node in one batch", why: "no judge counts pipelines",
		patches: []patch{{"internal/lane/lane.go", "\t\tready = append(ready, ln.start(c, prior(n))...)", "\t\tln.mu.Unlock()\n\t\tafter := prior(n)\n\t\tln.mu.Lock()\n\t\tready = append(ready, ln.start(c, after)...)"}},
		test:    "TestAskAllQueuesBeforeItSends",
		pkg:     "./internal/lane",
	},
	{
		name: "leads-unbounded", rule: "the number of keys that are remembered as ahead of our clock is bounded", why: "no simulation uses thousands of keys",
		patches: []patch{{"internal/fence/ahead.go", "case a.keys == nil || len(a.keys) >= maxAhead:", "case a.keys == nil:"}},
		test:    "TestRememberedLeadsAreBounded",
	},
	{
		name: "never-swept", rule: "expired locks leave the Locker's list", why: "expired locks in the list only cost memory",
		patches: []patch{{"internal/held/held.go", "if slept || h.checks%sweepEvery == 0 {", "if slept {"}},
		test:    "TestExpiredLocksLeaveTheList",
	},
	{
		name: "unmeasured-raise", rule: "the validity is checked after the raise", why: "the fault shows only if a raise on a majority takes longer than the remaining validity",
		patches: []patch{{"acquire.go", "now.Since(b.Start) >= valid {", "e.tail == b && now.Since(b.Start) >= valid {"}},
		test:    "TestALockWhoseTokenIsAgreedOnAfterTheValidityIsNotAcquired",
	},
	{
		name: "unmeasured", rule: "the validity is checked when the majority is complete", why: "answers rarely come after the validity and before the timeout",
		patches: []patch{{"acquire.go", "now.Since(b.Start) >= valid {", "false && now.Since(b.Start) >= valid {"}},
		test:    "TestAMajorityThatIsCompleteAfterTheValidityIsNoLock",
	},
	{
		name: "value-reused", rule: "each attempt has a new value", profiles: "network,slow,skew",
		patches: []patch{{"acquire.go", "\tvalue := e.label + \":\" + l.rand.UUID()", "\tvalue := e.label + \":\" + fmt.Sprint(e.began.At.UnixNano())"}},
		test:    "TestValuesAreUniqueOverAllClientsAndAllRequests",
	},
	{
		name: "told-late", rule: "the loss of a lock is signalled no later than Until", profiles: "extend,network",
		patches: []patch{
			{"extend.go", "k.remaining(now)-noticeOf(k.valid, k.l.opt.Grace), k.checkLoss)", "k.remaining(now)+20*time.Millisecond, k.checkLoss)"},
			{"extend.go", "left, lead := k.remaining(k.l.now()), leadOf(k.valid)", "left, lead := k.remaining(k.l.now())+20*time.Millisecond, leadOf(k.valid)"},
		},
		test: "TestContextsEndGraceBeforeUntil",
	},
	{
		name: "no-grace", rule: "contexts end Options.Grace before Until", profiles: "grace",
		patches: []patch{{"drift.go", "return max(grace, leadOf(valid))", "return leadOf(valid)"}},
		test:    "TestContextsEndGraceBeforeUntil",
	},
	{
		name: "renew-into-grace", rule: "renewals are scheduled within the validity less Grace", why: "a lock is lost earlier than necessary, which breaks no promise",
		patches: []patch{{"drift.go", "return valid - grace", "return valid"}},
		test:    "TestTwoRenewalsMayFailBeforeTheGraceBegins",
	},
	{
		name: "renewed-in-grace", rule: "an extension that is answered after the loss was signalled changes nothing", why: "the fault shows only if an extension is in flight when the contexts end and is answered within Grace",
		patches: []patch{{"extend.go", "case k.lossTold != nil && ownershipOf(t) != ownershipLost:", "case false:"}},
		test:    "TestAnExtensionThatIsAnsweredWithinTheGraceChangesNothing",
	},
	{
		name: "extended-in-grace", rule: "Extend fails once the loss was signalled", profiles: "grace",
		patches: []patch{
			{"extend.go", "\tcase k.lossTold != nil:\n\t\terr = k.lossTold\n", ""},
			{"extend.go", "case k.lossTold != nil && ownershipOf(t) != ownershipLost:", "case false:"},
		},
		test: "TestContextsEndGraceBeforeUntil",
	},
	{
		name: "lost-in-grace", rule: "a lock whose contexts ended before Until is held until Until or its release", why: "the judges do not distinguish this loss from one that the votes decide",
		patches: []patch{{"extend.go", "after = k.warn()", "after = k.lose(nil)"}},
		test:    "TestContextsEndGraceBeforeUntil",
	},
	{
		name: "steady-only", rule: "time is what the further of two clocks says", profiles: "skew",
		patches: []patch{{"internal/clock/clock.go", "return max(a.At.Sub(b.At), time.Duration(a.Wall-b.Wall)*time.Microsecond)", "return a.At.Sub(b.At)"}},
		test:    "TestTimePassesByTheClockThatWentFurther",
	},
	{
		name: "freed-early", rule: "a loss that is signalled before Until leaves the keys on the nodes until Until", why: "no simulated client takes the lock in the few milliseconds before Until",
		patches: []patch{{"lock.go", "\t\tearly = k.remaining(k.l.now())\n", "\t\tearly = 0\n"}},
		test:    "TestALostLockIsNotFreedBeforeUntil",
	},
	{
		name: "wait-for-all", rule: "an acquire returns as soon as its result is certain", profiles: "minority",
		patches: []patch{{"acquire.go", "return acquisitionOf(t) != acquirePending && (t.Yes == 0 || t.Settled(t.No))", "return t.Open() == 0"}},
		test:    "TestMinorityInTroubleCostsNoTime",
	},
	{
		name: "release-waits-for-all", rule: "a release returns as soon as its result is certain", profiles: "minority",
		patches: []patch{{"release.go", "func(t quorum.Tally) bool { return ownershipOf(t) != ownershipPending })", "func(t quorum.Tally) bool { return t.Open() == 0 })"}},
		test:    "TestMinorityInTroubleCostsNoTime",
	},
	{
		name: "close-waits-for-all", rule: "Close does not wait for a silent minority", why: "the judges allow Close two node timeouts",
		patches: []patch{{"internal/lane/close.go", "if answers >= need {", "if answers >= len(lanes) {"}},
		test:    "TestCloseDoesNotWaitForASilentMinority",
	},
	{
		name: "close-hurries", rule: "Close waits for nodes that are slow", why: "the judges allow Close to leave keys on a slow node",
		patches: []patch{{"internal/lane/close.go", "\t\t\tif wait <= 0 {\n", "\t\t\tif true {\n"}},
		test:    "TestCloseWaitsForASlowNode",
	},
	{
		name: "restore-not", rule: "a failed adoption puts the old value back", profiles: "adopt",
		patches: []patch{{"adopt.go", "return wire.RestoreQuestion(e.name, old, mine, ttl)", "return wire.RollbackQuestion(e.name, mine, ttl)"}},
		test:    "TestAFailedAdoptionGivesTheLockBack",
	},
	{
		name: "restore-longer", rule: "a failed adoption puts the old value back with the expiry that it had", profiles: "edges",
		patches: []patch{{"internal/wire/lua/restore.lua", "if ends then redis.call('PEXPIREAT', KEYS[1], string.format('%.0f', ends)) end", ""}},
		test:    "TestAFailedAdoptionGivesBackTheLifeThatWasLeft",
	},
	{
		name: "restore-quiet", rule: "a failed adoption whose undoing frees the lock, or lets it end sooner, wakes those that have seen the later end", why: "few adoptions are undone late, and the waiters poll",
		patches: []patch{{"internal/wire/lua/restore.lua", "+ 1 >= left then", ">= -9 then"}},
		test:    "TestAFailedAdoptionThatIsUndoneWakesWaiters",
	},
	{
		name: "restore-anew", rule: "a failed adoption does not put back a value that would have expired", why: "the fault shows only if the giver's value would have expired when it is put back",
		patches: []patch{{"internal/wire/lua/restore.lua", "ARGV[2], 'XX', 'KEEPTTL')", "ARGV[2], 'KEEPTTL')"}},
		test:    "TestAFailedAdoptionPutsBackNothingThatWouldHaveExpired",
	},
	{
		name: "adopt-endless", rule: "an adopted key has a ttl", profiles: "edges",
		patches: []patch{{"internal/wire/lua/adopt.lua", "if left < tonumber(ARGV[3]) then", "if left >= 0 and left < tonumber(ARGV[3]) then"}},
		test:    "TestWhatHasNoTTLIsAdoptedWithOne",
	},
	{
		name: "extend-endless", rule: "an extended key has a ttl", why: "nothing in the simulation removes the ttl of a key",
		patches: []patch{{"internal/wire/lua/extend.lua", "if redis.call('PTTL', KEYS[1]) <= tonumber(ARGV[2]) then", "local left = redis.call('PTTL', KEYS[1])\nif left >= 0 and left <= tonumber(ARGV[2]) then"}},
		test:    "TestAnExtensionGivesATTLToWhatHasNone",
	},
	{
		name: "clean-up-forgotten", rule: "the clean-ups of a key are sent one after the other", profiles: "edges",
		patches: []patch{{"internal/quorum/cleanup.go", "\tb.previous = s.lasts[b.Name.Full]\n", ""}},
		test:    "TestWhatTheGiverSendsWaitsForEveryRestore",
	},
	{
		name: "restore-handed", rule: "the release of a lock that is handed to the next local waiter also follows the restore", why: "the fault shows only if the giver is in the Locker whose adoption fails, with a waiter behind it",
		patches: []patch{{"internal/quorum/call.go", "\tb.previous = nil // a chain", "\tif next != nil {\n\t\tprevious = nil\n\t}\n\tb.previous = nil // a chain"}},
		test:    "TestAHandOverWaitsForTheRestore",
	},
	{
		name: "channel-silences", rule: "a channel that the node refuses does not end the subscription to the others", why: "simulated nodes refuse all channels or none",
		patches: []patch{{"internal/pubsub/subscriber.go", "if wire.RefusesChannel(err) && s.setAside() {", "if false && s.setAside() {"}},
		test:    "TestAForbiddenChannelSilencesNoOther",
	},
	{
		name: "channel-kept", rule: "the refusal of a channel that nobody wants any more is not remembered", why: "as above: it costs memory",
		patches: []patch{{"internal/pubsub/subscriber.go", "if _, ok := s.wanted[c]; !ok {\n\t\t\tcontinue", "if false {\n\t\t\tcontinue"}},
		test:    "TestARefusalOfAnIgnoredChannelIsNotKept",
	},
	{
		name: "channel-forgotten", rule: "a channel that the node refused is asked for again", why: "simulated nodes refuse all channels or none",
		patches: []patch{{"internal/pubsub/subscriber.go", "\t\t\ts.retryAside()\n", ""}},
		test:    "TestAForbiddenChannelSilencesNoOther",
	},
	{
		name: "ill-followed", rule: "a minority of registers that no clock has written chooses no token", why: "nobody writes into the registers of simulated nodes",
		patches: []patch{{"internal/quorum/scores.go", "if s.ills > t.N-t.Need() {", "if s.ills > 0 {"}},
		test:    "TestAMinorityOfIllRegistersChoosesNoToken",
	},
	{
		name: "ill-ignored", rule: "a token is above the registers of a majority, whoever wrote them", why: "as above",
		patches: []patch{{"internal/quorum/scores.go", "if s.ills > t.N-t.Need() {", "if false {"}},
		test:    "TestAMajorityOfIllRegistersIsFollowed",
	},
	{
		name: "ill-counted", rule: "a node whose register did not move does not count for a token, also if the register is far above it", why: "as above",
		patches: []patch{{"internal/wire/reply.go", "return Reply{Answer: Yes, Score: score, Sent: true}", "return Reply{Answer: Yes, Fenced: score > MaxClock, Score: score, Sent: true}"}},
		test:    "TestAnIllRegisterDoesNotCount",
	},
	{
		name: "mute-believed", rule: "a waiter whose user may not publish polls", why: "simulated users may publish on some nodes only for a while",
		patches: []patch{{"internal/pubsub/subscriber.go", "\t\t\t\tif s.speech == speaks {\n\t\t\t\t\tconfirmed", "\t\t\t\tif true {\n\t\t\t\t\tconfirmed"}},
		test:    "TestWhoMayNotPublishPolls",
	},
	{
		name: "mute-untold", rule: "a release that could not be announced is reported", why: "no judge looks at events",
		patches: []patch{{"internal/lane/news.go", "case rep.Mute:", "case false:"}},
		test:    "TestANodeThatRefusesToAnnounceIsReported",
	},
	{
		name: "unheard-quiet", rule: "an attempt that a majority may have granted without being heard is taken back loudly", why: "a waiter that sleeps looks again after some seconds",
		patches: []patch{{"internal/quorum/call.go", "!c.Voted || c.Reply.Stored {", "!c.Voted || c.Reply.Answer == wire.Yes {"}},
		test:    "TestAnAttemptWhoseAnswersWereLostIsTakenBackLoudly",
	},
	{
		name: "refused-awaited", rule: "Close does not wait for a node that refuses what it is owed", why: "Close takes longer, which no judge measures",
		patches: []patch{{"internal/lane/close.go", "(ln.down != nil || !ln.owed.payable(ln.patient))", "(ln.down != nil || ln.owed.len() == 0)"}},
		test:    "TestCloseDoesNotWaitForANodeThatRefuses",
	},
	{
		name: "nil-and-value", rule: "a nil reply that has a value grants nothing", why: "no client of the simulation has a hook that sets both",
		patches: []patch{{"internal/wire/command.go", "\tcase c.null: // a hook", "\tcase c.null && v == \"\": // a hook"}},
		test:    "TestANilReplyWithAValueGrantsNothing",
	},
	{
		name: "down-as-first", rule: "a node is down because of what failed last", why: "texts are not judged",
		patches: []patch{{"internal/lane/probe.go", "\t\t\t\tln.stillDown(p.err)\n", ""}},
		test:    "TestWhyANodeIsDownIsKeptUpToDate",
	},
	{
		name: "pings-in-vain", rule: "a node on which several PINGs in a row have failed is down", why: "Close takes longer, which no judge measures",
		patches: []patch{{"internal/lane/probe.go", "failed == maxFailedPings && ", "failed < 0 && "}},
		test:    "TestCloseDoesNotWaitForANodeThatRefuses",
	},
	{
		name: "pings-decide", rule: "a node that replies to anything else is not down because PINGs fail", why: "no simulated connection loses PINGs alone",
		patches: []patch{{"internal/lane/probe.go", "if ln.heard.After(since) {", "if false {"}},
		test:    "TestANodeThatRepliesIsNotDownForLostPings",
	},
	{
		name: "refused-by-most", rule: "Close sends again what a majority refuses by errors that may go away", why: "no judge asks what Close leaves on nodes that refuse",
		patches: []patch{{"internal/lane/close.go", "if !awaitIdle(lanes, need, silentAfter, limit, false) {", "if awaitIdle(lanes, need, silentAfter, limit, false); false {"}},
		test:    "TestCloseIsPatientWithAMajorityThatRefuses",
	},
	{
		name: "refused-by-most-for-ever", rule: "but not what it refuses by errors that do not", why: "Close takes longer, which no judge measures",
		patches: []patch{{"internal/lane/owed.go", "one.tries == 0 || patient && one.heals", "one.tries == 0 || patient"}},
		test:    "TestCloseIsPatientWithAMajorityThatRefuses",
	},
	{
		name: "refused-first", rule: "what a node refuses again and again keeps back nothing else that is owed to it", why: "no simulated node refuses single keys",
		patches: []patch{{"internal/lane/owed.go", "if refused && (len(due) >", "if false && (len(due) >"}},
		test:    "TestWhatANodeNeverTakesKeepsBackNothingElse",
	},
	{
		name: "refused-held-back", rule: "a node that works again gets at once what was held back because it refused the rest", why: "the clean-up comes some seconds later",
		patches: []patch{{"internal/lane/owed.go", "\td.heldTill = time.Time{}\n", ""}},
		test:    "TestANodeThatWorksAgainGetsAllThatIsOwed",
	},
	{
		name: "late-hurried", rule: "the pause before the last rollback of what may still arrive is kept when the node works again", why: "a command comes so late only if its connection has failed",
		patches: []patch{{"internal/lane/owed.go", "\t\t\td.tries, d.heals = 0, false\n", ""}},
		test:    "TestARollbackThatWasRefusedKeepsItsPause",
	},
	{
		name: "refusal-flaps", rule: "a node that refuses one key and grants others is reported once, and is not sent what it refuses with every call", why: "no simulated node refuses single keys",
		patches: []patch{{"internal/lane/news.go", "again := !f.ended.IsZero() &&", "again := false &&"}},
		test:    "TestANodeThatRefusesOneKeyIsReportedOnce",
	},
	{
		name: "up-too-early", rule: "a node is reported as up when no reason lasts why it is not", why: "no judge looks at events",
		patches: []patch{{"internal/lane/news.go", "\tnow, why, _ := ln.condition()\n", "\tnow, why, _ := ln.condition()\n\tif now == Quarantined && was != Up {\n\t\tnow, why = Up, nil\n\t}\n"}},
		test:    "TestANodeIsUpWhenNoReasonLasts",
	},
	{
		name: "refused-paid", rule: "a clean-up that a node refuses stays owed", why: "no simulated node refuses clean-ups for a while",
		patches: []patch{{"internal/lane/owed.go", "\t\t\td.tries++\n", "\t\t\tpaid[d] = true\n"}},
		test:    "TestAKeyGoesSoonAfterItsNodeWorksAgain",
	},
	{
		name: "refused-unretried", rule: "Close sends once more what nodes have refused, whatever the pause", why: "nodes that refuse are one of several, and work again before the end",
		patches: []patch{{"close.go", "\t\tln.Retry()\n", "\t\t_ = ln\n"}},
		test:    "TestCloseSendsAgainWhatWasRefused",
	},
	{
		name: "refused-holds-later", rule: "what became owed after a refused batch had left does not wait for its pause", why: "it is cleaned up some seconds later",
		patches: []patch{{"internal/lane/owed.go", "if one.due.Before(d.heldTill) && !one.since.After(d.heldFrom) {", "if one.due.Before(d.heldTill) {"}},
		test:    "TestWhatNodesNeverTakeDelaysNothingElse",
	},
	{
		name: "woken-twice", rule: "a wake-up of the prober does not outlive it", why: "one PING more does no harm, but which of two comes first is left to chance",
		patches: []patch{{"internal/lane/probe.go", "\t\tcase <-ln.probeWake: // left", "\t\tcase <-make(chan struct{}): // left"}},
		test:    "TestAWakeUpIsForOneProber",
	},
	{
		name: "owed-unwoken", rule: "what becomes owed in a long pause of the prober ends that pause", why: "it is cleaned up some seconds later",
		patches: []patch{{"internal/lane/owed.go", "if now.Add(pause).Before(ln.pauseEnds) {", "if false {"}},
		test:    "TestWhatNodesNeverTakeDelaysNothingElse",
	},
	{
		name: "refused-unhurried", rule: "a node that works again gets at once what it has refused", why: "the clean-up comes some seconds later",
		patches: []patch{{"internal/lane/news.go", "\tln.owed.hurry(ln.now())\n", ""}},
		test:    "TestAKeyGoesSoonAfterItsNodeWorksAgain",
	},
	{
		name: "refused-raised", rule: "a clean-up is not owed where the command that it undoes was refused as well", why: "a needless clean-up does no harm",
		patches: []patch{{"internal/lane/residue.go", "if rep.Sent && !rep.Refused {", "if rep.Sent {"}},
		test:    "TestNothingIsOwedToANodeThatHasRefusedAll",
	},
	{
		name: "refused-half", rule: "a register that was raised beside a refused SET gets a ttl", why: "simulated nodes refuse both commands or none",
		patches: []patch{{"internal/wire/reply.go", "r.Refused = failed(AskAcquire, err).Refused // otherwise the register may have been raised\n\t\t} else {\n\t\t\tr.Refused = false\n\t\t}", "r.Refused = failed(AskAcquire, err).Refused\n\t\t}"}},
		test:    "TestARegisterRaisedBesideARefusedSetGetsATTL",
	},
	{
		name: "refusal-unnoticed", rule: "a node that refuses is reported, also by replies that decide nothing", why: "no judge looks at events",
		patches: []patch{{"internal/lane/batch.go", "if ln.duplicate == nil && !other {", "if ln.duplicate == nil && !other && rep.Answer != wire.Unknown {"}},
		test:    "TestAFarNodeThatRefusesIsReported",
	},
	{
		name: "refusal-of-one-kind", rule: "a node works again only when it does what it refused", why: "no judge looks at events",
		patches: []patch{{"internal/lane/news.go", "if (f.kinds != 0 || again) && ln.now()", "if again && ln.now()"}},
		test:    "TestANodeThatRefusesOneKindOfCommandIsReportedOnce",
	},
	{
		name: "restore-owed", rule: "a release waits for a pending restore of its value", why: "the fault shows only if a node refuses the restore and executes the release",
		patches: []patch{{"internal/lane/order.go", "if c.mayBeOvertaken || ln.owed.restoreOwed(c.Question.Value) {", "if c.mayBeOvertaken {"}},
		test:    "TestAReleaseWaitsForARestoreThatIsOwed",
	},
	{
		name: "restore-owed-later", rule: "a pending release waits for a pending restore of its value", why: "the fault shows only if a node refuses the restore and executes the release",
		patches: []patch{{"internal/lane/owed.go", "!ln.owed.from(d).After(now) && !ln.owed.restoreOwed(d.question.Value) {", "!ln.owed.from(d).After(now) {"}},
		test:    "TestAReleaseWaitsForARestoreThatIsOwed",
	},
	{
		name: "adopter-released", rule: "a failed adoption deletes the key if the giver was released meanwhile", why: "the fault shows only if a release comes within a round trip of an adoption that fails",
		patches: []patch{{"internal/quorum/cleanup.go", "case s.adoptions[q.Back].ended:", "case s.adoptions[q.Back].ended && false:"}},
		test:    "TestAReleaseInTheMidstOfAnAdoptionThatFails",
	},
	{
		name: "adopt-owed", rule: "a value is not adopted on a node where its release is pending", why: "the fault shows only if the release is sent again within a round trip of the adoption",
		patches: []patch{{"internal/lane/order.go", "case c.Question.Kind == wire.AskAdopt && ln.owed.releaseOwed(c.Question.Back):", "case false && ln.owed.releaseOwed(c.Question.Back):"}},
		test:    "TestAValueWhoseReleaseIsOwedIsNotAdopted",
	},
	{
		name: "released-after-until", rule: "a key that is missing counts as released only before Until", why: "the result is wrong, but no simulated client acts on it",
		patches: []patch{{"quorum.go", "\tcase !asked:\n\t\treturn wire.No\n\tcase inTime && missing:", "\tcase missing:"}},
		test:    "TestAReleaseCountsForgettingAsReleasedOnlyBeforeUntil",
	},
	{
		name: "anothers-is-lost", rule: "another's value does not decide the result of a repeated release that was first sent in time", why: "the fault shows only if an answer is lost and another client takes the key before Until",
		patches: []patch{{"quorum.go", "case inTime && !again:", "case inTime:"}},
		test:    "TestReleaseAfterUntilSaysNoMoreThanIsKnown",
	},
	{
		name: "unknown-is-lost", rule: "a key that is gone after Until does not decide the result of a release that was sent in time", why: "no judge looks at the result of Release, and each lock is released once",
		patches: []patch{{"quorum.go", "\treturn wire.Unknown\n}", "\treturn wire.No\n}"}},
		test:    "TestReleaseAfterUntilSaysNoMoreThanIsKnown",
	},
	{
		name: "wake-grants", rule: "a waiter that is woken still has to acquire the lock", profiles: "hear",
		patches: []patch{{"acquire.go", "\t\tcase acquireHeld:\n\t\t\terr = l.notAcquired(e, b, ErrHeld, \"\")", "\t\tcase acquireHeld:\n\t\t\tif e.waiter.Joined() && e.attempt > 1 {\n\t\t\t\tbreak // who was told takes what it gets\n\t\t\t}\n\t\t\terr = l.notAcquired(e, b, ErrHeld, \"\")"}},
		test:    "TestAWakeUpIsNoGrant",
	},
	{
		name: "wake-kept", rule: "a waiter that leaves notifies the next one if the lock is free", why: "each release notifies two waiters, and the second one makes up for it",
		patches: []patch{{"internal/wire/lua/leave.lua", "if redis.call('EXISTS', KEYS[1]) == 1 then return 1 end", "if true then return 1 end"}},
		test:    "TestScriptLeave",
	},
	{
		name: "no-look", rule: "a waiter asks the nodes once after it has subscribed", why: "the fault shows only if the release comes between a try and the subscription",
		patches: []patch{
			{"internal/wait/plan.go", "\t\tp.subscribedSince = now\n\t\treturn p.actBy(now)", "\t\tp.subscribedSince = now"},
			{"internal/wait/plan.go", "return p.Hears() && !p.subscribedSince.After(asked)", "return p.Hears()"},
		},
		test: "TestAReleaseBeforeTheSubscriptionIsFoundByALookAfterIt",
	},
	{
		name: "no-net", rule: "a subscribed waiter still polls from time to time", why: "later waiters announce their releases, too",
		patches: []patch{{"internal/wait/plan.go", "{ return pollHeard - p.rules.spread(pollHeard/pollSpread) }", "{ return time.Hour }"}},
		test:    "TestNothingDependsOnAnnouncements",
	},
	{
		name: "half-open", rule: "a silent subscription is pinged, and given up if the PING is not answered", why: "a subscribed waiter still polls",
		patches: []patch{{"internal/pubsub/subscriber.go", "\t\t\t\treturn nil // half-open", "\t\t\t\tlook.Reset(pingEvery)"}},
		test:    "TestAQuietLinkIsPingedAndAHalfOpenOneGivenUp",
	},
	{
		name: "not-declined", rule: "a lock that is handed to a caller that gave up is rolled back", profiles: "leavers",
		patches: []patch{{"acquire.go", "\tl.undo(b, takeBackHanded(b))", ""}},
		test:    "TestAHandOverThatIsNotClaimedGoesToTheNext",
	},
	{
		name: "handed-after-all", rule: "an acquire for a caller that gave up before it was sent is not sent", why: "the lock is taken and released within a round trip, which costs others a turn and breaks no promise",
		patches: []patch{{"acquire.go", "\tb.Abandon() // if it has not been sent yet, it never is\n", ""}},
		test:    "TestWhatIsHandedToAWaiterThatGaveUpIsNotSent",
	},
	{
		name: "handed-for-ever", rule: "a Locker that had the lock sixteen times in a row leaves it to others", why: "crowds of one process are small in it, and who had a turn is not judged without Fair",
		patches: []patch{{"internal/wait/turns.go", "func (p *Plan) MayHandOver() bool { return p.turns.run < MaxTurns }", "func (p *Plan) MayHandOver() bool { return true }"}},
		test:    "TestNobodyWaitsWhileAnotherLockerHasMoreThanItsTurns",
	},
	{
		name: "joins-at-once", rule: "a caller that comes when the lock is being left to others waits", why: "the same",
		patches: []patch{
			{"internal/wait/turns.go", "\tcase now.Before(t.until):\n", "\tcase t == nil:\n"},
			{"internal/wait/turns.go", "case t.open && (t.contended || !p.MayHandOver()):", "case false:"},
		},
		test: "TestAnEntryThatNobodyStandsForPassesTheNoticeOn",
	},
	{
		name: "told-unknown", rule: "a release says whether a waiter was notified", why: "the same",
		patches: []patch{{"internal/wire/lua/release.lua", "if verdict == 1 and told > 0 then return 2 end\n", ""}},
		test:    "TestNobodyWaitsWhileAnotherLockerHasMoreThanItsTurns",
	},
	{
		name: "ghost", rule: "an entry whose Locker has no waiter any more passes the notice on", why: "the second that is told makes up for it",
		patches: []patch{{"internal/queue/entry.go", "if !told || r.first != nil || !r.queued || r.holds(now) {", "if true || told {"}},
		test:    "TestAnEntryThatNobodyStandsForPassesTheNoticeOn",
	},
	{
		name: "waits-for-itself", rule: "who is under a lock does not wait for it", why: "the simulated clients do not nest calls",
		patches: []patch{{"lock.go", "k.l == l && k.name.Full == e.name.Full && k.Valid() {", "false && k.l == l && k.name.Full == e.name.Full && k.Valid() {"}},
		test:    "TestALockIsNotReentrant",
	},
	{
		name: "untold", rule: "every caller of a local queue gets the votes that its leader saw", why: "no judge looks at the text of errors",
		patches: []patch{{"internal/queue/queues.go", "\tm.queue.result, m.queue.wonBy = result, nil\n", "\t_ = result\n"}},
		test:    "TestEveryCallerOfALineIsToldWhatTheLeaderSaw",
	},
	{
		name: "told-stale", rule: "an error names the lock of its own process that the caller waited for", why: "no judge looks at the text of errors",
		patches: []patch{{"internal/queue/head.go", "\tr.result, r.wonBy = nil, b\n", ""}},
		test:    "TestAnErrorSaysWhatItsCallerWaitedFor",
	},
	{
		name: "retry-locked", rule: "callbacks run while no mutex is held", why: "Options.Retry of simulated clients does not call the Locker",
		patches: []patch{{"wait.go", "\t\tLongest: l.longestPause(e), Standing: queue.Standing(b),\n", "\t\tLongest: func() time.Duration { l.mu.Lock(); defer l.mu.Unlock(); return l.longestPause(e) }(), Standing: queue.Standing(b),\n"}},
		test:    "TestNoCallbackRunsUnderALockOfOurs",
	},
	{
		name: "all-tie", rule: "after a tie one of the callers tries again at once", why: "the pauses of the tied callers are random anyway",
		patches: []patch{{"internal/wait/plan.go", "case tie && winsTieBreak(l.Votes, l.Mine):", "case tie:"}},
		test:    "TestOfThoseWhoTiedOneGoesOn",
	},
	{
		name: "never-skipped", rule: "a place ends", profiles: "fair",
		patches: []patch{{"internal/wire/lua/queue.lua", "if ends >= ms and ends <= ms + life then return entry, ends end", "if true then return entry, ends end"}},
		test:    "TestADeadHeadIsSkipped",
	},
	{
		name: "place-endless", rule: "a place that ends later than any can is none", profiles: "forged",
		patches: []patch{{"internal/wire/lua/queue.lua", "if ends >= ms and ends <= ms + life then", "if ends >= ms then"}},
		test:    "TestForgedPlacesLapse",
	},
	{
		name: "winner-stays", rule: "Fair: who wins or gives up leaves every queue", profiles: "turns,fair",
		patches: []patch{
			{"internal/queue/queues.go", "\t\tif r.queued && !(won && (r.comesBack || w.cfg.Rules.Fair)) {", "\t\tif r.queued && !w.cfg.Rules.Fair {"},
			{"internal/wire/lua/turn.lua", "  if ARGV[4] ~= '' then redis.call('ZREM', KEYS[3], ARGV[4], ARGV[4] .. '!') end\n", ""},
			{"internal/queue/handover.go", "\t\tif r.first == nil && r.queued && !r.winner.ByAll() {", "\t\tif false {"},
		},
		test: "TestWhoGivesUpOrWinsLeavesAllQueues",
	},
	{
		name: "turn-refused-after", rule: "Fair: a node executes the commands that it may refuse before it grants", why: "no simulated user is refused a command",
		patches: []patch{
			{"internal/wire/lua/turn.lua", "  if ARGV[5] == '' then clock() end\n", "  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])\n  if ARGV[5] == '' then clock() end\n"},
			{"internal/wire/lua/turn.lua", "  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])\n  return", "  return"},
		},
		test: "TestWhatIsRefusedGrantsNothingAndQueuesNothing",
	},
	{
		name: "script-refused-clean", rule: "a script that was refused a command may have executed others before it", why: "as above",
		patches: []patch{{"internal/wire/command.go", " && !refusedInScript(e.Text)", ""}},
		test:    "TestWhatANodeSaysIsClassified",
	},
	{
		name: "turn-queued-unread", rule: "Fair: a node reads the lock before it queues an entry", why: "as above",
		patches: []patch{
			{"internal/wire/lua/turn.lua", "local left = held and redis.call('PTTL', KEYS[1])\n", ""},
			{"internal/wire/lua/turn.lua", "if held then return {0, held, left,", "local left = held and redis.call('PTTL', KEYS[1])\nif held then return {0, held, left,"},
		},
		test: "TestWhatIsRefusedGrantsNothingAndQueuesNothing",
	},
	{
		name: "turn-queue-endless", rule: "Fair: a node checks that it may give a new queue a ttl before it queues the first entry", why: "as above",
		patches: []patch{{"internal/wire/lua/turn.lua", "local lives = (turn and not met or ARGV[9] == '1') and redis.call('PEXPIRE', KEYS[3], ARGV[7])", "local lives = (turn and not met or ARGV[9] == '1') and 0"}},
		test:    "TestWhatIsRefusedGrantsNothingAndQueuesNothing",
	},
	{
		name: "wait-queue-endless", rule: "and so does the script that queues an entry without a try", why: "as above",
		patches: []patch{{"internal/wire/lua/wait.lua", "local lives = redis.call('PEXPIRE', KEYS[2], ARGV[4])", "local lives = 0"}},
		test:    "TestWhatIsRefusedGrantsNothingAndQueuesNothing",
	},
	{
		name: "wait-refused-after", rule: "that script executes the commands that the server may refuse before it queues the entry", why: "as above",
		patches: []patch{
			{"internal/wire/lua/wait.lua", "local left, before = redis.call('PTTL', KEYS[1]), redis", "local before = redis"},
			{"internal/wire/lua/wait.lua", "return {left, before,", "return {redis.call('PTTL', KEYS[1]), before,"},
			{"internal/wire/lua/wait.lua", "return {left, redis", "return {redis.call('PTTL', KEYS[1]), redis"},
		},
		test: "TestWhatIsRefusedGrantsNothingAndQueuesNothing",
	},
	{
		name: "release-queue-endless", rule: "a release queues no entry where it may not give the queue a ttl", why: "as above",
		patches: []patch{{"internal/wire/lua/release.lua", "  local lives = redis.pcall('PEXPIRE', KEYS[2], ARGV[8])\n", "  local lives = 0\n"}},
		test:    "TestWhatIsRefusedGrantsNothingAndQueuesNothing",
	},
	{
		name: "no-turns", rule: "Fair: a node says yes to the first of its queue only", profiles: "turns",
		patches: []patch{{"internal/wire/lua/turn.lua", "local turn = not first or first == ARGV[4]", "local turn = true"}},
		test:    "TestScriptTurn",
	},
	{
		name: "turn-unanswered", rule: "Fair: a node that grants a turn has answered, though it tells no time", why: "it takes two who tie on four nodes, and a release before either asks again",
		patches: []patch{{"internal/wait/turn.go", "\t\tcase r.Answer != wire.Yes:\n\t\t\tcontinue\n", "\t\tdefault:\n\t\t\tcontinue\n"}},
		test:    "TestNewStanding",
	},
	{
		name: "turn-unheard", rule: "Fair: a waiter that a minority told tries, a little later", why: "two of four nodes have to lose their queues before a release",
		patches: []patch{{"internal/wait/plan.go", "\t\treturn false, p.actBy(now.Add(2*tieLook", "\t\tif p.rules.Fair {\n\t\t\treturn false, false\n\t\t}\n\t\treturn false, p.actBy(now.Add(2*tieLook"}},
		test:    "TestAFairWaiterThatAMinorityTellsTries",
	},
	{
		name: "turn-timeless", rule: "Fair: a waiter knows when the lock expires, also if it is not the first", profiles: "turns,fair",
		patches: []patch{{"internal/wire/lua/turn.lua", "return {0, held, left,", "return {0, held, turn and left or tonumber(ARGV[6]),"}},
		test:    "TestAFairWaiterThatWasNotFirstKnowsWhenTheLockExpires",
	},
	{
		name: "turn-untold", rule: "Fair: who finds the lock free and another first tells that one", why: "all who were told of a release have to give up within half a millisecond of it, once in a thousand runs",
		patches: []patch{{"internal/wire/lua/turn.lua", "redis.pcall('PUBLISH', ARGV[8] .. ':' .. first, '1 ' .. ARGV[1])\n", ""}},
		test:    "TestWhoFindsTheLockFreeTellsWhoseTurnItIs",
	},
	{
		name: "own-clock", rule: "with Fair, tickets count in the nodes' time", profiles: "turns",
		patches: []patch{{"internal/queue/head.go", "s = wait.NewStanding(t.Need(), replies(calls), b.Start.At, took)", "s = wait.NewStanding(t.Need(), replies(calls), b.Start.At, took)\n\t\ts.Clock = b.Start.Wall"}},
		test:    "TestTurnsAreInOrderOfArrival",
	},
	{
		name: "new-ticket", rule: "with Fair, a caller keeps its ticket over all tries", profiles: "turns",
		patches: []patch{{"internal/wait/turn.go", "\tc.answered = s.Answered\n", "\tc.answered = s.Answered\n\tif c.ticket != 0 {\n\t\tc.ticket = p.ticket(now)\n\t}\n"}},
		test:    "TestATicketIsTheNodesTimeOfTheArrival",
	},
	{
		name: "turn-taken-back", rule: "with Fair, an attempt that is taken back queues the next caller of its Locker, before others are notified", why: "ctx has to end within a round trip of the grant, and another waiter has to be nearer to the nodes",
		patches: []patch{{"acquire.go", "l.queues.TakenBack(&e.waiter, leaves))", "wire.Attempted)"}},
		test:    "TestACallerThatGivesBackWhatItWasGrantedCostsTheNextNoTurn",
	},
	{
		name: "all-turn-taken-back", rule: "so does that of an AcquireAll", why: "the same",
		patches: []patch{{"several.go", "q = a.l.takeBack(e, b, leaves)", "q = a.l.takeBack(e, b, false)"}},
		test:    "TestACallerThatGivesBackWhatItWasGrantedCostsTheNextNoTurn",
	},
	{
		name: "extend-shortens", rule: "an extension never shortens a ttl", why: "all extensions of a lock have the same ttl, and a late one ends later",
		patches: []patch{{"internal/wire/lua/extend.lua", "if redis.call('PTTL', KEYS[1]) <= tonumber(ARGV[2]) then", "if true then"}},
		test:    "TestScriptExtend",
	},
	{
		name: "adopt-shortens", rule: "an adoption never shortens a ttl", profiles: "adopt",
		patches: []patch{{"internal/wire/lua/adopt.lua", "if left < tonumber(ARGV[3]) then", "if true then"}},
		test:    "TestScriptAdopt",
	},
	{
		name: "guard-off", rule: "a node that may have forgotten grants nothing while the guard lasts", profiles: "guard",
		patches: []patch{{"options.go", "if opt.RestartGuard == 0 {", "if true {"}},
		test:    "TestANodeThatForgotGrantsNothingForTheGuard",
	},
	{
		name: "guard-half", rule: "the quarantine lasts for the whole guard", profiles: "guard",
		patches: []patch{{"internal/wire/lua/guard.lua", "local left = since + ARGV[#ARGV - 1] - now", "local left = since + ARGV[#ARGV - 1] / 2 - now"}},
		test:    "TestAStartIsNoEarlierThanTheUptimeSays",
	},
	{
		name: "guard-believes", rule: "a node's mark is compared with the server", profiles: "guard",
		patches: []patch{
			{"internal/lane/guard.go", "c.comparesMark = !checked || !direct", "c.comparesMark = checked && !checked"},
			{"internal/lane/guard.go", "case rep.Answer == wire.Yes && !compared:", "case false:"},
			{"internal/wire/question.go", "args[len(args)-1] = markUnknown", "args[len(args)-1] = markBelieved"},
		},
		test: "TestANodeThatForgotGrantsNothingForTheGuard",
	},
	{
		name: "guard-flushed", rule: "the mark of a server that was flushed does not date from its start", profiles: "guard",
		patches: []patch{{"internal/wire/lua/guard.lua", "not string.find(stats, 'cmdstat_flush')", "true"}},
		test:    "TestANodeThatForgotGrantsNothingForTheGuard",
	},
	{
		name: "guard-once", rule: "every grant compares the mark if the client's connections are unknown", why: "a restarted server does not know the scripts, which reveals the restart as well",
		patches: []patch{{"internal/lane/guard.go", "c.comparesMark = !checked || !direct", "c.comparesMark = !checked"}},
		test:    "TestBehindAnUnknownNodeEveryGrantComparesTheMark",
	},
	{
		name: "guard-doubtless", rule: "a grant does not count if the grant that compares the mark for its batch was not executed", why: "batches are small, and their first grant rarely fails",
		patches: []patch{{"internal/lane/guard.go", "case rep.Answer == wire.Yes && !compared:", "case false:"}},
		test:    "TestAGrantOnAMarkThatNothingComparedIsTakenBack",
	},
	{
		name: "guard-adopts", rule: "the guard also applies to adoptions", why: "the fault shows only if a value that was given back is adopted",
		patches: []patch{{"internal/wire/lua/guard.lua", "if not held or held == ARGV[1] then", "if not held then"}},
		test:    "TestAnAdoptionIsAGrant",
	},
	{
		name: "wait-is-deadline", rule: "the error after WithWait's limit is the verdict of the last round, without a context error", why: "no judge looks at the text of errors",
		patches: []patch{{"round.go", "if context.Cause(ctx) == errWaited {", "if false {"}},
		test:    "TestEveryCallerOfALineIsToldWhatTheLeaderSaw",
	},
	{
		name: "wait-limits-work", rule: "WithWait does not limit the work of Run", why: "no profile works for longer than it waits",
		patches: []patch{{"redlock.go", "	lock, err := l.Acquire(ctx, key, ttl, opts...)", "	ctx, cut := context.WithTimeout(ctx, 200*time.Millisecond)\n	defer cut()\n	lock, err := l.Acquire(ctx, key, ttl, opts...)"}},
		test:    "TestWithWaitDoesNotLimitTheWork",
	},
	{
		name: "waiters-uncapped", rule: "no more callers wait than Options.MaxWaiters allows", why: "no profile sets it",
		patches: []patch{{"internal/queue/queues.go", "n >= w.cfg.MaxWaiters", "n > w.cfg.MaxWaiters"}},
		test:    "TestMaxWaitersBoundsTheCallersOfEachKey",
	},
	{
		name: "waiters-apart", rule: "calls of AcquireAll that wait for each other count for Options.MaxWaiters with those in the queue of the key", why: "no profile sets it",
		patches: []patch{{"internal/queue/queues.go", "n := w.elsewhere[key]", "n := 0 * w.elsewhere[key]"}},
		test:    "TestMaxWaitersCountsAllWaysOfWaiting",
	},
	{
		name: "waiters-unmoved", rule: "a call of AcquireAll counts for Options.MaxWaiters at the key at which it waits now", why: "no profile sets it",
		patches: []patch{{"internal/wait/gate.go", "if g.Take == nil || e.Place == to {", "if g.Take == nil || e.Place != \"\" {"}},
		test:    "TestMaxWaitersAtTheNextKeyOfAcquireAll",
	},
	{
		name: "waiters-counted-on", rule: "a call of AcquireAll that no longer waits no longer counts for Options.MaxWaiters", why: "no profile sets it",
		patches: []patch{{"several.go", "\t\ta.leavePlace()\n", ""}},
		test:    "TestMaxWaitersCountsAllWaysOfWaiting",
	},
	{
		name: "release-not-started", rule: "a release is sent although Trace.Start panics", profiles: "edges",
		patches: []patch{{"release.go", "defer func() { r.asked = k.beginRelease(r.ctx, nil) }()", "started := false\n\tdefer func() {\n\t\tif started {\n\t\t\tr.asked = k.beginRelease(r.ctx, nil)\n\t\t}\n\t}()"}, {"release.go", "r.ctx, r.traced = k.l.traceCall(ctx, Call{Method: \"Release\", Key: k.name.Key, Lock: k})\n\t}\n", "r.ctx, r.traced = k.l.traceCall(ctx, Call{Method: \"Release\", Key: k.name.Key, Lock: k})\n\t}\n\tstarted = true\n"}},
		test:    "TestAPanicInATraceLeavesNoLock",
	},
	{
		name: "leave-usual-ttl", rule: "LeaveUntil extends the lock by as much as the given time needs", why: "simulated locks are left until their Until",
		patches: []patch{{"extend.go", "ttl, err = k.ttlUntil(leave, now)", "_, err = k.ttlUntil(leave, now)"}},
		test:    "TestLeaveUntilKeepsTheKeyUntilTheTime",
	},
	{
		name: "leave-no-drift", rule: "LeaveUntil adds the drift of the time that it needs", why: "simulated locks are left until their Until",
		patches: []patch{{"drift.go", "return validity(ttl, drift) >= valid })", "return validity(ttl, 0*drift) >= valid })"}},
		test:    "TestLeaveUntilKeepsTheKeyUntilTheTime",
	},
	{
		name: "leave-released", rule: "LeaveUntil gives the lock up without releasing it even if its extension has no majority", why: "simulated locks are left until their Until",
		patches: []patch{{"extend.go", "if x.leave && k.state == stateHeld {", "if x.leave && x.err == nil && k.state == stateHeld {"}},
		test:    "TestLeaveUntilWithoutAMajoritySaysWhatIsKnown",
	},
	{
		name: "taken-back-quietly", rule: "an attempt that may have had a majority and is taken back tells those that it refused", profiles: "leavers",
		patches: []patch{{"acquire.go", "\tif b.MayHaveMajority() {", "\tif b == nil {"}},
		test:    "TestAnAttemptThatIsTakenBackWakesThoseThatItRefused",
	},
	{
		name: "announced-in-vain", rule: "what is announced has the head ask", profiles: "ears",
		patches: []patch{{"internal/wait/plan.go", "if !ok || a.Value == mine", "if ok || a.Value == mine"}},
		test:    "TestAnnounced",
	},
	{
		name: "holder-unknown", rule: "a try with Options.Fair waits for the replies of a majority, also where half of the nodes can refuse it", why: "it asks more often, which no judge counts",
		patches: []patch{{"acquire.go", "return acquireDecided(t) && (t.Yes+t.No >= t.Need() || t.Open() == 0)", "return acquireDecided(t)"}},
		test:    "TestWhatAWaiterCosts",
	},
	{
		name: "long-retry", rule: "a pause of Options.Retry is no longer than the poll while announcements are heard, whatever the last try showed", why: "no profile has a long Retry",
		patches: []patch{{"internal/wait/plan.go", "	if p.Hears() {\n\t\tpause = min(", "	if false {\n\t\tpause = min("}},
		test:    "TestALongRetryDoesNotOutlastAnOutage",
	},
	{
		name: "adopted-handed", rule: "an adopted lock may live longer than its ttl, and is not handed on to a shorter one", why: "the locks of a key are all alike in its profile",
		patches: []patch{{"wait.go", "\tcase k.adopted:\n", "\tcase false:\n"}},
		test:    "TestAShorterLockIsNotHandedOnSilently",
	},
	{
		name: "extended-handed", rule: "nor is a lock after an extension that may have been executed", why: "as above",
		patches: []patch{{"wait.go", "case k.ext != nil || k.failed.n > 0:", "case false:"}},
		test:    "TestAShorterLockIsNotHandedOnSilently",
	},
	{
		name: "holder-unasked", rule: "a waiter learns who holds the lock by a try or by a look, also where a near node lost it", why: "it asks more often, which no judge counts",
		patches: []patch{
			{"acquire.go", "(t.Yes == 0 || t.Settled(t.No))", "true"},
			{"internal/wait/plan.go", "if l.Holder != \"\" {\n\t\t\tp.met(", "if false {\n\t\t\tp.met("},
		},
		test: "TestAWaiterLearnsTheHolderThoughANearNodeDoesNotHaveIt",
	},
	{
		name: "half-looks", rule: "a look waits for the votes that show who holds the lock, also where half of the nodes say that it is held", why: "no judge reads who an error names",
		patches: []patch{{"wait.go", "return t.Settled(t.Yes) && t.Settled(t.No)", "return decide(t.N, t.Yes, t.No) != pending || t.Open() == 0"}},
		test:    "TestAWaitThatOnlyLookedIsToldTheHolder",
	},
	{
		name: "half-ties", rule: "where half of the nodes refuse an attempt, the open votes decide whether that is a tie", why: "no judge counts attempts",
		patches: []patch{{"acquire.go", "(t.Yes == 0 || t.Settled(t.No))", "true"}},
		test:    "TestATieIsTriedAgain",
	},
	{
		name: "own-end-heard", rule: "the end of its own attempt is no news to a caller", why: "it asks once more in a pause",
		patches: []patch{{"internal/wait/plan.go", "if !ok || a.Value == mine && mine != \"\" {", "if !ok {"}},
		test:    "TestAWaiterThatTakesBackItsAttemptDoesNotWakeItself",
	},
	{
		name: "wake-each-other", rule: "the ends of attempts have a waiter ask once in a pause of Options.Retry", profiles: "ears",
		patches: []patch{{"internal/wait/plan.go", "if now.Before(p.attemptsFrom) {", "if false {"}},
		test:    "TestWaitersWhoseAttemptsFailDoNotWakeEachOtherAllTheTime",
	},
	{
		name: "end-of-refuser-late", rule: "but at once if it was refused because of that attempt", why: "it asks after the pause",
		patches: []patch{{"internal/wait/plan.go", "a.Attempt && a.Value != p.holder && a.Value != p.attempt", "a.Attempt && a.Value != p.attempt"}},
		test:    "TestTheEndsOfAttemptsWakeOncePerPause",
	},
	{
		name: "told-though-held", rule: "a release announces nothing where another has the lock by then", why: "a waiter that asks in vain harms nobody",
		patches: []patch{{"internal/wire/lua/release.lua", "if verdict == 0 or verdict == -1 and", "if verdict == -1 and"}},
		test:    "TestScriptRelease",
	},
	{
		name: "told-of-nothing", rule: "the end of an attempt is announced where it deletes something", why: "the same",
		patches: []patch{{"internal/wire/lua/release.lua", "if verdict == 0 or verdict == -1 and ARGV[4] == 'attempt' then", "if verdict == 0 then"}},
		test:    "TestScriptRelease",
	},
	{
		name: "lost-removed-quietly", rule: "the removal of a lock that was lost is announced", why: "the ttl ends some milliseconds later",
		patches: []patch{{"lock.go", "wire.ReleaseQuestion(k.name, *k.value, k.ttl, wire.ToAll), &k.left", "wire.RollbackQuestion(k.name, *k.value, k.ttl), &k.left"}},
		test:    "TestTheRemovalOfALostLockWakesWaiters",
	},
	{
		name: "won-still-due", rule: "a waiter that acquires the lock has used up what was known of its release", why: "an attempt in vain harms nobody",
		patches: []patch{{"internal/wait/plan.go", "p.due, p.asked, p.foreign = false, start, false", "p.asked, p.foreign = start, false"}},
		test:    "TestALockThatIsHandedOnIsAskedForOnce",
	},
	{
		name: "handed-in-vain", rule: "an attempt to which the lock was handed on, and that has no majority, tells others wherever the lock is free without it", why: "it takes a caller that gives up within two round trips",
		patches: []patch{{"acquire.go", "b.Question.TTL, wire.Handed)", "b.Question.TTL, wire.Attempted)"}},
		test:    "TestAHandOverThatOvertakesGoesToOthersIfTheWaiterGivesUp",
	},
	{
		name: "handed-unsent", rule: "also where it has left nothing", why: "the same",
		patches: []patch{{"release.go", "if !q.Handed() && last.Finished() {", "if last.Finished() {"}},
		test:    "TestAHandOverThatOvertakesGoesToOthersIfTheWaiterGivesUp",
	},
	{
		name: "owed-quietly", rule: "a release that hands the lock on notifies others once it is owed", why: "a majority has to hang at the release, and the only waiter to give up before it is back",
		patches: []patch{{"internal/lane/owed.go", "question: c.Question.Owed(),", "question: c.Question,"}},
		test:    "TestAHandOverThatIsOwedGoesToOthersIfTheWaiterGivesUp",
	},
	{
		name: "told-after-trace", rule: "contexts of a lock that an extension found lost end before a Trace is told of the round", why: "no Trace of the simulation blocks, and the contexts end at that instant",
		patches: []patch{{"extend.go", "\t\tcontexts.cancel(cause)", "\t\t_, _ = contexts, cause"}},
		test:    "TestContextsEndBeforeTheTraceIsToldOfTheRound",
	},
	{
		name: "expired-told", rule: "a release passes over entries that have expired", why: "whoever is told second makes up for it",
		patches: []patch{{"internal/wire/lua/release.lua", "at < 4e15 and at + 2000000 >= us", "at < 4e15"}},
		test:    "TestScriptReleaseTellsTheQueue",
	},
	{
		name: "next-unqueued", rule: "Fair: a release queues the next caller of its Locker", profiles: "turns,fair",
		patches: []patch{{"internal/queue/handover.go", "n.Place, r.prolonged = w.entryOf(r), now", "n.Ticket = 0"}},
	},
	{
		name: "next-told-late", rule: "Fair: a release queues the next caller of its Locker before it tells who is first", profiles: "turns,fair",
		patches: []patch{{"internal/wire/lua/release.lua", "  if type(lives) == 'number' then redis.pcall('ZADD', KEYS[2], ARGV[9], ours, now + ARGV[7], ours .. '!') end\n", ""}},
	},
	{
		name: "next-owed", rule: "Fair: a release that is owed queues nobody", why: "an entry counts for two seconds, within which a caller has to leave and a node to come back",
		patches: []patch{{"internal/wire/question.go", "\tif n != ToAll && n != Attempted {", "\tif n == (Notice{}) {"}},
		test:    "TestOwedQuestions",
	},
	{
		name: "next-stays", rule: "Fair: an entry that a release queued is removed when its caller gives up", why: "it counts for two seconds, and who is next asks before that if the lock is held for long",
		patches: []patch{{"internal/queue/handover.go", "r.queued, r.dequeue = n.Ticket != 0, b", "r.queued, r.dequeue = false, b"}},
		test:    "TestTheReleaseQueuesTheNextCallerOfItsLocker",
	},
	{
		name: "next-of-another", rule: "Fair: only the release of the lock that this Locker holds queues its next caller", why: "another release has to come between two steps of the winner",
		patches: []patch{{"internal/queue/handover.go", "|| r.holds(now) || !r.plan.LeavesToRelease()", "|| !r.plan.LeavesToRelease()"}},
		test:    "TestOnlyTheReleaseOfTheLockQueuesTheNextCaller",
	},
	{
		name: "next-rare", rule: "Fair: with Options.Retry a caller does not leave it to the release to queue it", why: "the simulation does not judge how often Options.Retry has a caller ask",
		patches: []patch{{"internal/wait/turn.go", "return p.Hears() && !p.rules.OwnRetry", "return p.Hears()"}},
		test:    "TestSucceed",
	},
	{
		name: "next-for-ever", rule: "Fair: a release that queues the first entry gives the queue a ttl", why: "the entry is removed when its caller has its turn, and the queue with it",
		patches: []patch{{"internal/wire/lua/release.lua", "  if lives == 0 then redis.pcall('PEXPIRE', KEYS[2], ARGV[8]) end\n", ""}},
		test:    "TestScriptReleaseTellsTheQueue",
	},
	{
		name: "look-late", rule: "a Locker whose release was announced looks at the lock after some fifty milliseconds at the latest", why: "both waiters that are notified have to hang",
		patches: []patch{{"internal/wait/turns.go", "min(2*t.usual, leaveMost*p.rules.RetryFirst)", "2*t.usual"}},
		test:    "TestTheLockIsLeftToOthersForAsLongAsTheyUsuallyHaveIt",
	},
	{
		name: "held-in-vain", rule: "a caller that is refused by half of the nodes waits for their holder, also if the errors of the other half do not heal with time", why: "no profile has such errors on half of an even number of nodes",
		patches: []patch{{"quorum.go", "return t.N-hard < t.Need() && !refused(t)", "return t.N-hard < t.Need()"}},
		test:    "TestAHolderIsWaitedForThoughNoMajorityIsLeft",
	},
	{
		name: "look-nameless", rule: "a look also reads the value of a lock whose holder is not known", why: "no judge reads who an error names",
		patches: []patch{{"internal/queue/entry.go", "if !known || r.plan.Unsure() {", "if false {"}},
		test:    "TestAWaitThatOnlyLookedIsToldTheHolder",
	},
	{
		name: "votes-untold", rule: "a caller behind another is told the votes of the round in progress", why: "no judge knows what a caller that gives up should have been told",
		patches: []patch{{"internal/queue/entry.go", "\tr.asking = b\n", ""}},
		test:    "TestEveryCallerIsToldTheVotesOfTheRoundInProgress",
	},
	{
		name: "loss-twice", rule: "Run does not add a loss to an error that says it", why: "no judge reads errors",
		patches: []patch{{"several.go", "\tif errors.Is(err, loss) {\n\t\treturn err\n\t}\n", ""}},
		test:    "TestALossIsToldOnce",
	},
	{
		name: "loss-unsettled", rule: "a loss shows the votes of the last extension that the nodes had time to answer", why: "the same",
		patches: []patch{{"extend.go", "if fs.settled.b != nil && fs.settled.open() < fs.last.open() {", "if fs.n < 0 {"}},
		test:    "TestALossTellsTheVotesOfNodesThatReply",
	},
	{
		name: "left-for-long", rule: "a Locker leaves the lock to others for a quarter of a second at most, however long a round took", why: "no simulated process stands still during a round",
		patches: []patch{{"internal/wait/turns.go", "pause = min(pause, tieLook*max(p.pace, took)+", "pause = (tieLook*max(p.pace, took) + "}},
		test:    "TestWhatHoldsOfAPlan",
		pkg:     "./internal/wait",
	},
	{
		name: "pace-for-long", rule: "the pauses in multiples of a round are shorter than those between polls, however long the round took", why: "the same",
		patches: []patch{{"internal/wait/plan.go", "took := min(max(l.Took, shortestTook), longestTook)", "took := max(l.Took, shortestTook)"}},
		test:    "TestWhatHoldsOfAPlan",
		pkg:     "./internal/wait",
	},
	{
		name: "behind-for-long", rule: "a waiter that finds the lock free behind others tries after a quarter of a second at the latest", why: "many Lockers would have to wait, and all before it hang",
		patches: []patch{{"internal/wait/plan.go", "min(time.Duration(s.Before)*(tieLook*p.pace+lookSpread), p.rules.RetryMost)", "time.Duration(s.Before)*(tieLook*p.pace+lookSpread)"}},
		test:    "TestLooked",
		pkg:     "./internal/wait",
	},
	{
		name: "left-as-usual", rule: "a Locker that waited for others in vain looks after ten milliseconds the next time", why: "the same",
		patches: []patch{{"internal/wait/turns.go", "\tt.left, t.usual = time.Time{}, 0\n", ""}},
		test:    "TestTheLockIsLeftToOthersForAsLongAsTheyUsuallyHaveIt",
	},
	{
		name: "unplaced", rule: "an entry in the queues counts as fresh once a majority of the nodes has told that it has it", why: "a try that is lost has to follow a look that too few nodes answered, while they reply",
		patches: []patch{{"internal/queue/entry.go", "r.placed = time.Time{} // Looked", "r.placed = now // Looked"}},
		test:    "TestALookAfterATryInVainQueuesOnlyIfItHasTo",
	},
	{
		name: "look-overtaken", rule: "an entry in the queues does not count as fresh by a look that a release has followed", why: "a look has to be under way when its Locker releases the lock to others, and one of these has to take it before the Locker does",
		patches: []patch{{"internal/queue/head.go", "look.Standing.Answered && r.asked", "look.Standing.Answered"}},
		test:    "TestAReleaseThatFollowsALookMayRemoveTheEntry",
	},
	{
		name: "glance-behind", rule: "an entry that is to go behind the others does so with the next look", why: "it costs others a turn, and who had a turn is not judged without Fair",
		patches: []patch{{"internal/queue/entry.go", " && !r.behind", ""}},
		test:    "TestALookAfterATryInVainQueuesOnlyIfItHasTo",
	},
	{
		name: "turns-deaf", rule: "a Locker that has had all its turns ignores those who give up only while it leaves the lock to others", why: "of several nodes one is heard first, and the leader looks because of that",
		patches: []patch{{"internal/wait/turns.go", "case t.run >= MaxTurns && !fair && (t.open || now.Before(t.until)):", "case t.run >= MaxTurns && !fair:"}},
		test:    "TestThoseWhoGiveUpAreHeardUnlessTheLockIsLeftToOthers",
	},
	{
		name: "handed-to-nobody", rule: "a lock that was handed to a caller that gives up goes to the waiters of other Lockers", why: "two callers have to give up at one instant, before either has asked the nodes",
		patches: []patch{{"acquire.go", "\tl.undo(b, takeBackHanded(b))", "\tl.undo(b, l.takeBack(e, b, true))"}},
		test:    "TestAHandOverThatNobodyClaimsGoesToOthers",
	},
	{
		name: "leave-overtakes", rule: "the question that removes an entry follows the look that queues it", why: "an entry that stays delays others, and seldom for longer than a judge allows",
		patches: []patch{{"internal/queue/entry.go", "\tr.dequeue.Follow(r.enters)\n", ""}},
		test:    "TestALeaveFollowsWhatQueues",
	},
	{
		name: "all-kept", rule: "an attempt for several keys of which one is refused is undone", profiles: "several",
		patches: []patch{{"several.go", "b != nil && (sent || b == handed) {", "b != nil && sent && b == handed {"}},
		test:    "TestWhatEndsAcquireAllLeavesNothing",
	},
	{
		name: "gate-open", rule: "calls of one Locker that share a key ask the nodes one after the other", why: "attempts only refuse each other and are repeated",
		patches: []patch{{"internal/wait/gate.go", "g.busy[key] == 0 && (len(old)", "(g.busy[key] == 0 || true) && (len(old)"}},
		test:    "TestCallersOfOneLockerDoNotRefuseEachOther",
	},
	{
		name: "gate-passed", rule: "a call is not overtaken at the key that it waits for", why: "no promise says which call comes first",
		patches: []patch{{"internal/wait/gate.go", "(len(old) == 0 || old[0].age > e.age)", "(true || len(old) == 0)"}},
		test:    "TestAGateAdmitsThoseThatShareNoKey",
	},
	{
		name: "gate-shut", rule: "the release of a lock admits the next call", why: "the next call is late, but no judge knows how long it may take",
		patches: []patch{{"close.go", "l.gate.Free(k.name.Full)", "_ = k"}},
		test:    "TestCallersOfOneLockerDoNotRefuseEachOther",
	},
	{
		name: "gate-expired", rule: "a lock that has expired keeps no call of its Locker waiting", why: "the next call is a second late, but no judge knows how long it may take",
		patches: []patch{{"several.go", "\t\t\ta.l.held.Free(k)\n", ""}},
		test:    "TestACallerBehindLocksThatHaveExpired",
	},
	{
		name: "gate-displaced", rule: "a lock that has expired keeps no call of its Locker waiting, also if a call that tries once took its place", why: "the same",
		patches: []patch{{"several.go", "a.freeExpired() // those on the same keys, of which only the new ones are found from now on", ""}},
		test:    "TestACallerBehindLocksThatHaveExpired",
	},
	{
		name: "gate-for-ever", rule: "a call with little time left asks the nodes while it can still learn who has the lock", why: "the error is correct but says less",
		patches: []patch{{"several.go", "limit = min(limit, time.Until(end)/2)", "_ = end"}},
		test:    "TestACallerBehindLocksOfItsOwnLockerThatAreNotReleased",
	},
	{
		name: "all-waits-holding", rule: "also if the caller goes on to wait", profiles: "several",
		patches: []patch{{"several.go", "\t\tif a.locks == nil {\n\t\t\tlane.Each(0, n,", "\t\tif a.locks == nil && (err == nil || ctx.Err() != nil) {\n\t\t\tlane.Each(0, n,"}},
		test:    "TestAcquireAllHoldsNothingWhileItWaits",
	},
	{
		name: "all-twice", rule: "a key that is named twice is one lock", why: "it asks for ever, as fast as the nodes reply",
		patches: []patch{{"several.go", "\t\tif calls[key] != nil {\n\t\t\tcontinue\n\t\t}\n", ""}},
		test:    "TestAcquireAllTakesOneRoundTripAndOneBatch",
	},
	{
		name: "all-shorter", rule: "AcquireAll returns one lock for each key that was named, also if one was named twice", profiles: "several",
		patches: []patch{{"several.go", "\t\tlocks[i] = a.locks[at]\n\t}\n", "\t\tlocks[i] = a.locks[at]\n\t}\n\tlocks = locks.distinct()\n"}},
		test:    "TestAKeyThatIsNamedTwice",
	},
	{
		name: "all-acted-twice", rule: "the methods of several locks act once on each, also if a key was named twice", why: "to extend or release a lock twice does no harm but costs",
		patches: []patch{{"several.go", "if len(ks) < 2 {", "if true {"}},
		test:    "TestAKeyThatIsNamedTwice",
	},
	{
		name: "all-unsorted", rule: "all callers ask for the keys in one order", why: "it saves tries",
		patches: []patch{{"several.go", "\tslices.SortFunc(all, func(a, b *acquireCall) int { return cmp.Compare(a.name.Full, b.name.Full) })\n", ""}},
		test:    "TestAcquireAllAsksInOneOrder",
	},
	{
		name: "all-misplaced", rule: "the locks come in the order of the keys", profiles: "several",
		patches: []patch{{"several.go", "locks[i] = a.locks[at]", "locks[i] = a.locks[i+0*at]"}},
		test:    "TestAcquireAllTakesOneRoundTripAndOneBatch",
	},
	{
		name: "all-latest", rule: "the earliest Until of several locks counts", profiles: "several",
		patches: []patch{{"several.go", "if t := k.Until(); i == 0 || t.Before(first) {", "if t := k.Until(); i == 0 || t.After(first) {"}},
		test:    "TestTheEarliestUntilOfSeveralCounts",
	},
	{
		name: "all-any-valid", rule: "several locks are valid if all are", profiles: "several",
		patches: []patch{{"several.go", "!slices.ContainsFunc(ks, func(k *Lock) bool { return !k.Valid() })", "slices.ContainsFunc(ks, func(k *Lock) bool { return k.Valid() })"}},
		test:    "TestTheEarliestUntilOfSeveralCounts",
	},
	{
		name: "all-last-kept", rule: "the context of several locks ends with the first that is lost", why: "few locks are lost in a run, and most of them all at once",
		patches: []patch{{"extend.go", "ctx, stops[i] = k.KeepAlive(ctx)", "held, stops[i] = k.KeepAlive(ctx)"}, {"extend.go", "\treturn ctx, func() {\n", "\treturn held, func() {\n"}},
		test:    "TestRunAllSaysWhichLocksWereLost",
	},
	{
		name: "all-one-fence", rule: "each of several locks has the token that was agreed on for its key", profiles: "several",
		patches: []patch{{"several.go", "l.keep(ctx, e, asked[i], tokens[i])", "l.keep(ctx, e, asked[i], tokens[0])"}},
	},
	{
		name: "all-overtakes", rule: "an AcquireAll does not overtake those that wait already", why: "between callers of one process no order is promised",
		patches: []patch{{"several.go", "return !e.triesOnce() && a.l.queues.Waiting(e.name)", "return false && a.l.queues.Waiting(e.name)"}},
		test:    "TestAcquireAllDoesNotOvertakeWaiters",
	},
	{
		name: "all-in-step", rule: "an AcquireAll that goes from queue to queue without a wait pauses", profiles: "several",
		patches: []patch{{"several.go", "if a.moves > 1 && ", "if false && "}},
		test:    "TestFairAcquireAllsDoNotAskInStep",
	},
	{
		name: "traces-shared", rule: "each of several Traces gets its own values of the call above", why: "the simulation has one Trace for each Locker",
		patches: []patch{{"traces.go", "if above != nil {", "if above != nil && false {"}},
		test:    "TestTracesAreCalledAsIfAlone",
	},
	{
		name: "traces-hidden", rule: "what a caller adds to the context of a call goes before the values of several Traces", why: "the simulation has one Trace for each Locker",
		patches: []patch{{"traces.go", "!same(v, c.above.Value(key))", "!same(v, c.above.Value(key)) && false"}},
		test:    "TestTracesAreCalledAsIfAlone",
	},
	{
		name: "all-unended", rule: "AcquireAll is a call to a Trace, as each call is that asks the nodes", why: "no judge looks at the calls that are traced",
		patches: []patch{{"several.go", "traced.end(e, err, locks.distinct()...)", "_, _ = e, traced"}},
		test:    "TestEveryCallIsTracedBelowItsCaller",
	},
	{
		name: "all-untraced", rule: "the release of several locks is a call of Release for each, to a Trace", why: "no judge looks at the calls that are traced",
		patches: []patch{{"release.go", "calls[back[i]].start(ctx, ks[back[i]])", "ks[back[i]].beginRelease(context.Background(), nil); calls[back[i]].start(ctx, ks[back[i]])"}},
		test:    "TestReleasesOfSeveralLocksAreTraced",
	},
	{
		name: "slots-kept", rule: "a caller keeps one of the slots that it gets", profiles: "slots",
		patches: []patch{{"slot.go", "\tdefer r.lock.beginRelease(context.Background(), nil)\n", ""}},
		test:    "TestOneOfTwoSlotsThatComeFreeTogetherIsKept",
	},
	{
		name: "slots-to-itself", rule: "a slot that is given back is not handed on to the caller that gives it back", why: "it costs a round",
		patches: []patch{{"slot.go", "\tw.l.leaveQueue(w.calls[r.at], true)\n", "\tdefer w.l.leaveQueue(w.calls[r.at], true)\n"}, {"slot.go", "\tdefer r.lock.beginRelease(context.Background(), nil)\n", "\tr.lock.beginRelease(context.Background(), nil)\n"}},
		test:    "TestASecondSlotIsGivenBackAtOnce",
	},
	{
		name: "slots-waited-for", rule: "a caller that has a slot gives up the others at once", why: "no judge knows how soon a slot could have been had",
		patches: []patch{{"slot.go", "if panicked != nil || w.lock != nil {", "if time.Sleep(time.Second); panicked != nil || w.lock != nil {"}},
		test:    "TestASlotIsFoundAndWaitedFor",
	},
	{
		name: "slots-misnumbered", rule: "the number of a slot is that of its lock, also where some are left out", profiles: "slots",
		patches: []patch{{"slot.go", "return lock, s.numbers[at], nil", "return lock, at, nil"}},
		test:    "TestASlotWithinASlot",
	},
	{
		name: "slots-nested", rule: "the slots that the caller's own call chain holds are left out", profiles: "slots",
		patches: []patch{{"slot.go", "case errors.Is(err, ErrNested):", "case false:"}},
		test:    "TestASlotWithinASlot",
	},
	{
		name: "slots-one", rule: "a caller waits for every slot", profiles: "slots",
		patches: []patch{{"slot.go", "if w.state[i] == slotWaits && !ending {", "if i == 0 && w.state[i] == slotWaits && !ending {"}},
		test:    "TestASlotIsFoundAndWaitedFor",
	},
	{
		name: "slots-unseen", rule: "a caller that does not wait finds every free slot", why: "it may be held by the time the caller tries",
		patches: []patch{{"slot.go", "free[i] = t.Yes >= t.Need()", "free[i] = false && t.Yes >= t.Need()"}},
		test:    "TestASlotIsFoundAndWaitedFor",
	},
	{
		name: "slots-first-decides", rule: "a slot that nobody can acquire does not keep a caller from the others", why: "no simulated key has another type",
		patches: []patch{{"slot.go", "return lock, !missed || ended", "return lock, !missed || ended || s.calls[at].permanent"}},
		test:    "TestASlotThatNobodyCanGetIsPassedOver",
	},
	{
		name: "slots-held-only", rule: "nor does one for which there is no majority, whatever its nodes say", why: "no simulated key has another type",
		patches: []patch{{"slot.go", "return lock, !missed || ended", "return lock, !missed || ended || q.Err != ErrHeld && e.triesOnce()"}},
		test:    "TestASlotThatNobodyCanGetIsPassedOver",
	},
	{
		name: "slots-uncounted", rule: "the error of AcquireSlot says how many of the slots are held", why: "no judge reads texts",
		patches: []patch{{"slot.go", "if s.k == 1 || ", "if true || "}},
		test:    "TestAnErrorOfAcquireSlotTellsAboutAllSlots",
	},
	{
		name: "slots-failed-first", rule: "the error is that of a slot that is held, if there is one", why: "no judge looks at the votes of an error",
		patches: []patch{{"slot.go", "if rank += 2; ", "if rank -= 2; "}},
		test:    "TestAnErrorOfAcquireSlotTellsAboutAllSlots",
	},
	{
		name: "slots-run-misnumbered", rule: "RunSlot tells fn the number of its slot", profiles: "slots",
		patches: []patch{{"slot.go", "fn(held, lock, slot)", "fn(held, lock, 0*slot)"}},
		test:    "TestRunSlot",
	},
	{
		name: "slots-crowded", rule: "a caller that waits for slots is one goroutine while it does not ask the nodes", why: "no judge counts goroutines",
		patches: []patch{{"slot.go", "w.state[i] = slotWaits\n", "w.state[i] = slotWaits\n\t\t\tgo func() { <-ctx.Done() }()\n"}},
		test:    "TestACallerThatWaitsForSlotsIsOneGoroutine",
	},
	{
		name: "slots-calm", rule: "a callback's panic reaches a caller that waits for slots", why: "in the profile of slots no callback panics",
		patches: []patch{{"slot.go", "\t\tpanic(panicked) // on the caller's goroutine\n", ""}},
		test:    "TestAPanicWhileASlotIsWaitedForReachesTheCaller",
	},
	{
		name: "unresigned", rule: "the end of a term is announced also if fn panics", why: "Watch promises no time",
		patches: []patch{{"lead.go", "if term != nil {\n", "if term != nil && (led || err != nil) {\n"}},
		test:    "TestALeaderThatPanicsHasResigned",
	},
	{
		name: "releases-twice", rule: "Run waits for one release", why: "no judge measures how long a release takes",
		patches: []patch{{"several.go", "if !returned { // fn panicked", "if returned || !returned { // fn panicked"}},
		test:    "TestRunWaitsForItsReleaseOnce",
	},
	{
		name: "panic-untold", rule: "the end of a Run whose fn panics is told as ErrPanicked", why: "no judge looks at the calls that are traced",
		patches: []patch{{"redlock.go", "\terr = ErrPanicked // again until it returns\n", ""}},
		test:    "TestTheEndOfARunThatPanicsIsTold",
	},
	{
		name: "traced-root", rule: "a call has the caller's values that the context of Trace.Start lacks", why: "the simulation's tracers keep the caller's values",
		patches: []patch{{"trace.go", "return c.Context.Value(key)", "return nil"}},
		test:    "TestATracerHidesNothingOfTheCallersContext",
	},
	{
		name: "traced-cause", rule: "the cause with which a call ends is that of the caller's ctx", why: "no judge looks at causes",
		patches: []patch{{"trace.go", "tracedCtx{ctx, context.WithoutCancel(traced)}", "tracedCtx{ctx, traced}"}},
		test:    "TestATracerHidesNothingOfTheCallersContext",
	},
	{
		name: "released-is-lost", rule: "a leader that releases the lock itself has resigned", why: "the simulation's leaders leave the release to Lead",
		patches: []patch{{"lead.go", "released = lock.resigned()", "released = false"}},
		test:    "TestALeaderThatReleasesTheLockItselfHasResigned",
	},
	{
		name: "slots-asked-untold", rule: "a caller that gives up while it asks which slots are free is told the holder of the one that it tried", why: "no judge looks at the votes of an error",
		patches: []patch{{"slot.go", "if i == at || e.last != nil && !e.permanent {", "if i != at && e.last != nil && !e.permanent {"}},
		test:    "TestASlotWhoseCallEndsBeforeItKnowsAllIsToldTheHolder",
	},
	{
		name: "slots-untold", rule: "and so is one that gives up while it waits for all slots", why: "as above",
		patches: []patch{{"slot.go", "!q.Round.Value().IsZero() {", "q.Round.Value().IsZero() {"}},
		test:    "TestASlotWhoseCallEndsBeforeItKnowsAllIsToldTheHolder",
	},
	{
		name: "none-valid", rule: "no locks are not valid", why: "no judge asks Locks that a call did not return",
		patches: []patch{{"several.go", "return len(ks) > 0 && ", "return "}},
		test:    "TestNoLocksAreNotValid",
	},
	{
		name: "all-released-late", rule: "the end of ctx ends the wait for the releases of all locks", why: "simulated releases have no deadline",
		patches: []patch{{"release.go", "calls[i].wait(ended)", "_ = ended\n\t\t\tcalls[i].wait(endOf(ctx))"}},
		test:    "TestTheReleaseOfSeveralLocksEndsWithItsContext",
	},
	{
		name: "all-left-in-turn", rule: "several locks are left together, not one after the other", why: "simulated locks are left one at a time",
		patches: []patch{{"release.go", "calls[back[i]].start() })", "calls[back[i]].start(); calls[back[i]].wait(calls, nil) })"}},
		test:    "TestSeveralLocksAreLeftUntilTheTime",
	},
	{
		name: "all-left-ended", rule: "the end of a context of several locks, with the first that is left, does not shorten the wait for the others", why: "simulated locks are left one at a time",
		patches: []patch{{"release.go", "slices.ContainsFunc(all, (leaveCall).isDecided)", "c.isDecided()"}},
		test:    "TestSeveralLocksAreLeftUntilTheTime",
	},
	{
		name: "all-left-untold", rule: "the errors of all locks that are left together are joined", why: "simulated locks are left one at a time",
		patches: []patch{{"release.go", "		errs = append(errs, c.err)\n	}\n	return errors.Join(errs...)\n}\n\n// leaveUntil", "		errs = []error{c.err}\n	}\n	return errors.Join(errs...)\n}\n\n// leaveUntil"}},
		test:    "TestSeveralLocksAreLeftWhateverBecomesOfOne",
	},
	{
		name: "left-is-ended", rule: "a LeaveUntil whose success ends its own context returns its result", why: "it is a matter of a few instructions",
		patches: []patch{{"release.go", "c.mine && c.k.isDecided(c.x)", "c.mine && isDone(c.x.done)"}},
		test:    "TestACallThatEndsItsOwnContextReturnsItsResult",
	},
	{
		name: "lost-is-ended", rule: "an Extend whose result ends its own context returns that result", why: "the error of the context wraps ErrLost as well",
		patches: []patch{{"extend.go", "if counts && k.isDecided(x) {", "if counts && isDone(x.done) {"}},
		test:    "TestACallThatEndsItsOwnContextReturnsItsResult",
	},
	{
		name: "look-untold", rule: "a look that finds the lock held outdates a try without a quorum in the caller's error", why: "no judge knows what a caller that gives up should have been told",
		patches: []patch{{"wait.go", "case q == nil || q.Err != ErrHeld, !holder.IsZero() && holder != q.Round.Value():", "case q == nil:"}},
		test:    "TestALookThatFindsTheLockHeldOutdatesATryWithoutAQuorum",
	},
	{
		name: "turn-inherited", rule: "a caller that has not moved its Locker's entry does not stand there", why: "no judge knows which order the nodes saw",
		patches: []patch{{"internal/wait/turn.go", "return ticket != 0 || c.queued, ticket", "return c.ticket != 0, ticket"}},
		test:    "TestACallerDoesNotInheritATurn",
	},
	{
		name: "turn-lapsed", rule: "the first answer after an outage has a waiter queue its entry", why: "the judge of waiting allows for more after a fault",
		patches: []patch{{"internal/wait/turn.go", "case ticket == 0: // the entry was not refreshed, and may have expired\n\t\tpause = 0\n", ""}},
		test:    "TestAnEntryThatLapsedIsQueuedByTheFirstAnswer",
	},
	{
		name: "look-believed", rule: "a look that finds the lock held, after a release, is followed by a try that shows the holder", why: "attempts without a majority rarely meet a look",
		patches: []patch{{"internal/wait/plan.go", "if p.unsure && ", "if false && "}},
		test:    "TestALookThatMeetsAttemptsInVainIsFollowedByATry",
	},
	{
		name: "own-release-believed", rule: "also after a release by the waiter's own Locker", why: "as above",
		patches: []patch{
			{"internal/wait/turns.go", "\tp.outdated(now)\n\tp.turns.released", "\tp.turns.released"},
			{"internal/wait/turns.go", "\tp.outdated(now)\n\tt := &p.turns", "\tt := &p.turns"},
		},
		test: "TestALookAfterOurOwnReleaseMeetsAttemptsInVain",
	},
	{
		name: "released-since", rule: "a round shows no holder that may have released the lock since it began", why: "as above",
		patches: []patch{{"internal/wait/plan.go", "p.unsure = holder == \"\" || start.Before(p.news)", "p.unsure = holder == \"\""}},
		test:    "TestALookIsBelieved",
	},
	{
		name: "look-unmet", rule: "a look that reads the holder shows it as a try does", why: "a try follows",
		patches: []patch{{"internal/wait/plan.go", "if l.Holder != \"\" {\n\t\t\tp.met(", "if false {\n\t\t\tp.met("}},
		test:    "TestAnErrorNamesNoHolderThatItsOwnLockerReleased",
	},
	{
		name: "look-unread", rule: "a look reads the holder if a release may have outdated what is known", why: "a try follows",
		patches: []patch{{"internal/queue/entry.go", "if !known || r.plan.Unsure() {", "if !known {"}},
		test:    "TestAnErrorNamesNoHolderThatItsOwnLockerReleased",
	},
	{
		name: "told-released", rule: "the error of a caller names the holder that its last look has shown, and not an earlier one", why: "no judge reads who an error names",
		patches: []patch{{"wait.go", "!holder.IsZero() && holder != q.Round.Value():", "!holder.IsZero() && q.Round.Value().IsZero():"}},
		test:    "TestAnErrorNamesNoHolderThatItsOwnLockerReleased",
	},
	{
		name: "lost-unawaited", rule: "Close waits for the removal of a lock whose loss is signalled before Until", why: "it is a matter of the last millisecond before Until",
		patches: []patch{{"lock.go", "awaited := early > 0 && k.l.begin()", "awaited := false"}},
		test:    "TestCloseWaitsForTheRemovalOfALockThatWasJustLost",
	},
	{
		name: "released-stays", rule: "a lock that LeaveUntil has released does not stay", why: "no simulated client leaves a lock twice",
		patches: []patch{{"extend.go", "k.abandoned && k.release == nil && k.stays(", "k.abandoned && k.stays("}},
		test:    "TestLeaveUntilOfALockThatLeaveUntilReleased",
	},
	{
		name: "nap-stays", rule: "how long a key stays is counted by the clock that advanced more", why: "a simulated machine that sleeps leaves no lock",
		patches: []patch{{"release.go", "t.Sub(now.At) <= k.remaining(now)+time.Microsecond", "!k.start.At.Add(k.valid).Before(t)"}},
		test:    "TestLeaveUntilAfterANap",
	},
	{
		name: "looks-again", rule: "a release that is repeated does not owe again what the one before owes", why: "owed clean-ups that are sent twice do no harm until there is no room for them",
		patches: []patch{{"internal/quorum/call.go", "\t\t\tc.Lane.InheritOwed(c, &earlier.Calls[i]) // ", "\t\t\t// "}},
		test:    "TestRepeatedReleasesDoNotRepeatASecondLook",
	},
	{
		name: "watch-untold", rule: "a watch ends with the error of ctx or Close, also if the nodes' last replies were errors", why: "the simulation does not watch",
		patches: []patch{{"lead.go", "over := err != nil && !missed\n", "over := err != nil && (!missed || ctx.Err() != nil || l.isClosed())\n"}},
		test:    "TestAWatchEndsWithTheErrorOfWhatEndedIt",
	},
	{
		name: "adopted-expiry", rule: "the error of a release names no time by which the keys of an adopted lock have certainly expired", why: "no judge reads the text of an error",
		patches: []patch{{"release.go", "\t\tif k.adopted {\n", "\t\tif false && k.adopted {\n"}},
		test:    "TestAnUnansweredReleaseSaysWhenItsKeysExpire",
	},
	{
		name: "left-expiry", rule: "nor one before the ttl that a LeaveUntil in progress asked for", why: "as above",
		patches: []patch{{"release.go", "ttl := max(k.ttl, k.stayTTL)", "ttl := k.ttl"}},
		test:    "TestAnUnansweredReleaseSaysWhenItsKeysExpire",
	},
	{
		name: "value-plain", rule: "a lock keeps its value only where package fmt does not follow", why: "no simulated client prints anything",
		patches: []patch{{"lock.go", "Lock{l: l, name: e.name,", "Lock{l: l, failed: failedExtensions{last: failedExtension{why: b.Question.Value}}, name: e.name,"}},
		test:    "TestNothingKeptInAnUnexportedFieldShowsAValue",
	},
	{
		name: "value-in-chain", rule: "nothing in the chain of a node's error has arguments of a command", why: "no judge reads errors",
		patches: []patch{{"internal/wire/error.go", "text, err = head, cutReply(head)", "text = head"}},
		test:    "TestTheChainOfANodesErrorHasNoValue",
	},
	{
		name: "up-with-errors", rule: "a node that was down and replies to a PING with an error is not up", why: "no judge looks at the state of nodes",
		patches: []patch{{"internal/lane/probe.go", "\t\t\tif p.err != nil {\n\t\t\t\tln.refusedPing", "\t\t\tif false {\n\t\t\t\tln.refusedPing"}},
		test:    "TestANodeThatComesBackWithErrorsIsNotUp",
	},
	{
		name: "pinged-no-more", rule: "such a node gets PINGs until it replies to one without an error, or does what it is asked", why: "as above",
		patches: []patch{{"internal/lane/probe.go", "case ln.refusal.pings:", "case false:"}},
		test:    "TestANodeThatComesBackWithErrorsIsNotUp",
	},
	{
		name: "pinged-for-ever", rule: "nor longer than that: a user may be permitted everything but PING", why: "PINGs to a node that works do no harm",
		patches: []patch{{"internal/lane/news.go", "\tln.change(ln.forgetRefusal)\n\tln.refusal.ended", "\tln.change(func() { ln.refusal = refusal{pings: ln.refusal.pings} })\n\tln.refusal.ended"}},
		test:    "TestANodeThatRefusesPingsAloneIsUpOnceItIsUsed",
	},
	{
		name: "mute-flaps", rule: "a node that does not announce a release is mute until it has announced one a minute later", why: "no judge counts reports",
		patches: []patch{{"internal/lane/news.go", "case rep.Told && ln.mute != nil && ln.now().Sub(ln.mutedAt) >= refusedFor:", "case rep.Told:"}},
		test:    "TestANodeThatIsMuteForOneKeyIsReportedOnce",
	},
	{
		name: "run-innermost", rule: "a redlock run knows all locks that it was started under", why: "the simulation runs no commands",
		patches: []patch{{"cmd/redlock/run.go", "under := t.under", "var under []string"}},
		test:    "TestRunUnderItsOwnLockIsRefused",
		pkg:     "./cmd/redlock",
	},
	{
		name: "traces-replaced", rule: "a value of a context that cannot be compared is the one that was put there", why: "the simulation has one Trace for each Locker",
		patches: []patch{{"traces.go", "if v.Comparable() && w.Comparable() {\n\t\treturn v.Equal(w)\n\t}", "if !v.Comparable() || v.Equal(w) {\n\t\treturn true\n\t}"}},
		test:    "TestTracesAndValuesThatCannotBeCompared",
	},
	{
		name: "traces-passive", rule: "a Trace that leaves a value of its context as it is does not hide that of the next one", why: "the simulation has one Trace for each Locker",
		patches: []patch{{"traces.go", "if v.Comparable() && w.Comparable() {\n\t\treturn v.Equal(w)\n\t}", "if !v.Comparable() || !v.Equal(w) {\n\t\treturn false\n\t}"}},
		test:    "TestTracesAndValuesThatCannotBeCompared",
	},
	{
		name: "releasers-fence", rule: "a release prepares the next caller's attempt with or without a fence as that caller wants it", profiles: "unfenced",
		patches: []patch{{"wait.go", "start, name := l.now(), m.Name()", "start, name := l.now(), k.name"}},
		test:    "TestALockIsHandedOnAsTheNextCallerWantsIt",
	},
	{
		name: "unfenced-proposes", rule: "an attempt without a fence raises no register", profiles: "unfenced",
		patches: []patch{{"fence.go", "	if !name.Fenced {\n\t\treturn 0, true\n\t}\n", ""}},
		test:    "TestLocksWithoutAFenceMakeNoRegisters",
	},
	{
		name: "unfenced-touches", rule: "a clean-up of a lock without a fence leaves the register alone", why: "a command that gives no register a ttl changes nothing that a judge sees",
		patches: []patch{{"internal/wire/question.go", "	if !k.Fenced {\n\t\treturn []any{k.args.full, k.args.queue}\n\t}\n", ""}},
		test:    "TestWhatIsAskedWithoutAFence",
		pkg:     "./internal/wire",
	},
	{
		name: "adopt-immortal", rule: "an adoption makes no register where it may not give that a ttl", why: "no profile takes back a permission in the midst of a script",
		patches: []patch{{"internal/wire/lua/adopt.lua", "expire() -- also", "-- also"}},
		test:    "TestAnAdoptionThatMayNotExpireTheRegisterMakesNone",
	},
	{
		name: "adopt-zero", rule: "an adoption without a fence leaves the token alone", why: "the register stays where it was, since no score is below 0, and a register of the token 0 reads like none",
		patches: []patch{{"internal/wire/lua/adopt.lua", "ARGV[4] == '' and 0 or redis.call('ZADD', KEYS[2], 'GT', 'CH', ARGV[4], 'f')", "redis.call('ZADD', KEYS[2], 'GT', 'CH', ARGV[4] == '' and 0 or ARGV[4], 'f')"}},
		test:    "TestAnAdoptionWithoutAFence",
	},
	{
		name: "extends-wrong-register", rule: "a joint extension tells the registers of locks with a fence from those of the others", why: "the simulation joins few extensions of both",
		patches: []patch{{"internal/wire/lua/extends.lua", "  if fence ~= '-' then\n    registers = registers + 1", "  registers = registers + 1\n  if fence ~= '-' then"}},
		test:    "TestScriptExtends",
	},
	{
		name: "several-untold", rule: "the error of an AcquireAll that its context ended says so, also if that came after the last verdict", why: "the context has to end between two lines",
		patches: []patch{{"several.go", "	case decided:\n\t\treturn a.l.ended(ctx, at)\n", "	case decided:\n\t\treturn refused\n"}},
		test:    "TestAcquireAllThatEndsBetweenTwoLinesIsEndedByItsContext",
	},
	{
		name: "seen-anyhow", rule: "a register counts as seen where a release has deleted the lock beside it", why: "the register has its ttl a minute later",
		patches: []patch{{"internal/quorum/call.go", "r.Sent && r.Answer == wire.Yes {\n\t\tb.Looked", "r.Sent && r.Answer != wire.Unknown {\n\t\tb.Looked"}},
		test:    "TestAReleaseThatFindsNothingHasSeenNoRegister",
	},
	{
		name: "seen-not-again", rule: "registers that releases have left out are looked at a minute later, and by Close", why: "a process has to use a key once more within a minute after a node lost its data, and never again",
		patches: []patch{{"internal/lane/registers.go", "\tif g.seen != 0 {\n", "\tif false {\n"}},
		test:    "TestARegisterThatIsMadeAnewIsGivenALifeWithinAMinute",
	},
	{
		name: "seen-too-long", rule: "a release of a ttl whose registers live longer looks at them", why: "the simulated ttls are shorter",
		patches: []patch{{"internal/lane/registers.go", "!name.Fenced || !name.SharesLife(ttl) ||", "!name.Fenced ||"}},
		test:    "TestAReleaseLooksAtARegisterOnceAMinute",
	},
	{
		name: "seen-overtaken", rule: "the renewal of a register follows the releases that left it to that", why: "an acquire has to be late on a node that has just lost its data, at the end of a minute",
		patches: []patch{{"internal/lane/registers.go", "g.left(g.seen, ttl, b)", "g.again |= g.seen"}},
		test:    "TestARenewalFollowsTheReleaseThatLeftTheRegisterToIt",
	},
}
