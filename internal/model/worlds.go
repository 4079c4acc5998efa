package model

// Worlds is all that is checked: the sound ones, of which each visits all its states
// and finds nothing, and those that must be found broken (Finds), the smallest that
// show it.

var (
	plain   = Role{}                      // acquires, on its first proposal or not at all
	raiser  = Role{Raises: 1}             // raises its token once
	twice   = Role{Raises: 2}             // or twice, as the library may
	renewer = Role{Raises: 1, Extends: 1} // raises, and extends once
	holder  = Role{Extends: 1}
	keeper  = Role{Extends: 2}
	adopter = Role{Adopts: 1} // adopts the first attempt's value
)

const (
	fences = F1 | F2
	all    = I1 | F1 | F2 | F3 | V | H
)

// Worlds returns them, the sound ones first.
func Worlds() []World {
	return append(append(withoutClocks(), withClocks()...), broken()...)
}

func withoutClocks() []World {
	return []World{
		{Name: "noclocks", Doc: "two attempts, each may raise once", Roles: []Role{raiser, raiser}, Fences: 3, Checks: fences, Long: true},
		{Name: "noclocks-4", Doc: "the same with four numbers, as many as two attempts make", Roles: []Role{raiser, raiser}, Fences: 4, Checks: fences, Long: true},
		{Name: "noclocks-registers", Doc: "registers that begin at any numbers up to 2", Roles: []Role{raiser, raiser}, Fences: 4, Regs: 2, Checks: fences, Long: true},
		{Name: "noclocks-twice", Doc: "two attempts, each may raise twice", Roles: []Role{twice, twice}, Fences: 4, Checks: fences, Long: true},
		{Name: "noclocks-three", Doc: "three attempts that propose the same", Roles: []Role{plain, plain, plain}, Fences: 1, Checks: fences, Long: true},
		{Name: "noclocks-extend", Doc: "one extends and heals, the other acquires", Roles: []Role{holder, plain}, Fences: 2, Checks: fences, Long: true},
		{Name: "noclocks-raise-extend", Doc: "the same, and both may raise", Roles: []Role{renewer, raiser}, Fences: 3, Checks: fences, Long: true},
		{Name: "again", Doc: "two attempts whose acquires are executed any number of times", Roles: []Role{raiser, raiser}, Again: true, Fences: 3, Checks: fences, Long: true},
		{Name: "forgetting", Doc: "a node forgets; F2 where the same majority keeps its registers", Roles: []Role{plain, plain}, Fences: 2, Crashes: 1, Asks: AskSameMajority, Checks: F2},
		{Name: "forgetting-raise", Doc: "the same, and the second may raise", Roles: []Role{plain, raiser}, Fences: 3, Crashes: 1, Asks: AskSameMajority, Checks: F2, Long: true},
		{Name: "rolling", Doc: "a node forgets; an extension has put its register back", Roles: []Role{holder, plain}, Fences: 1, Crashes: 1, Asks: AskCarriers, Checks: F2, Long: true},
		{Name: "rolling-2", Doc: "two nodes do", Roles: []Role{holder, plain}, Fences: 2, Crashes: 2, Asks: AskCarriers, Checks: F2, Long: true},
	}
}

func withClocks() []World {
	return []World{
		{Name: "timing", Doc: "two attempts, each may raise once", Roles: []Role{raiser, raiser}, Clocks: true, Fences: 3, Checks: all},
		{Name: "timing-4", Doc: "the same with four numbers", Roles: []Role{raiser, raiser}, Clocks: true, Fences: 4, Checks: all, Long: true},
		{Name: "timing-three", Doc: "three attempts", Roles: []Role{plain, plain, plain}, Clocks: true, Fences: 2, Checks: all, Long: true},
		{Name: "timing-again", Doc: "two attempts whose acquires are executed any number of times", Roles: []Role{raiser, raiser}, Clocks: true, Again: true, Fences: 3, Checks: all, Long: true},
		{Name: "chain-again", Doc: "the same, and the first extends", Roles: []Role{holder, plain}, Clocks: true, Again: true, Fences: 2, Checks: all, Long: true},
		{Name: "chain", Doc: "acquire, extend, extend, with heals, against an acquire", Roles: []Role{keeper, plain}, Clocks: true, Fences: 2, Checks: all, Long: true},
		{Name: "duel", Doc: "raise, extend, heal, against one that raises", Roles: []Role{renewer, raiser}, Clocks: true, Fences: 4, Checks: all, Long: true},
		{Name: "restarts", Doc: "chain; a node restarts empty while a majority carries the lock", Roles: []Role{keeper, plain}, Clocks: true, Fences: 1, Crashes: 1, Crash: CrashMajorityStays, Checks: I1 | H | V, Long: true},
		{Name: "restarts-3", Doc: "every node does", Roles: []Role{keeper, plain}, Clocks: true, Fences: 1, Crashes: 3, Crash: CrashMajorityStays, Checks: I1 | H | V, Long: true},
		{Name: "amnesia", Doc: "a node forgets the lock before its first extension", Roles: []Role{keeper, plain}, Clocks: true, Fences: 1, Crashes: 1, Crash: CrashEarly, Checks: H, Long: true},
		{Name: "amnesia-2", Doc: "two nodes do", Roles: []Role{keeper, plain}, Clocks: true, Fences: 1, Crashes: 2, Crash: CrashEarly, Checks: H, Long: true},
		{Name: "away", Doc: "a node forgets and stays away for the ttl", Roles: []Role{raiser, raiser}, Clocks: true, Truth: true, Crashes: 1, Away: true, Checks: all, Long: true},
		{Name: "away-2", Doc: "two nodes do", Roles: []Role{raiser, raiser}, Clocks: true, Truth: true, Crashes: 2, Away: true, Checks: all, Long: true},
		{Name: "away-three", Doc: "three attempts, a node forgets and stays away", Roles: []Role{plain, plain, plain}, Clocks: true, Truth: true, Crashes: 1, Away: true, Checks: all, Long: true},
		{Name: "away-extend", Doc: "two nodes do, under an extension with heal", Roles: []Role{renewer, plain}, Clocks: true, Truth: true, Crashes: 2, Away: true, Checks: all, Long: true},
		{Name: "adopt-two", Doc: "two adopt at once", Roles: []Role{plain, adopter, adopter}, Clocks: true, Fences: 3, Checks: all, Long: true},
		{Name: "adopt", Doc: "an adoption, the giver's extension, and a third that acquires", Roles: []Role{holder, adopter, plain}, Clocks: true, Fences: 2, Checks: all, Long: true},
		{Name: "adopt-raise", Doc: "an adoption that raises, and a third that acquires", Roles: []Role{plain, {Adopts: 1, Raises: 1}, plain}, Clocks: true, Fences: 3, Checks: all, Long: true},
	}
}

// broken has a rule taken out of each but the last group, where it is an assumption.
func broken() []World {
	return []World{
		{Broken: EqualCounts, Finds: F1, Roles: []Role{raiser, raiser}, Fences: 2, Checks: fences},
		{Broken: RaiseAnywhere, Finds: F3, Roles: []Role{raiser, raiser}, Clocks: true, Fences: 3, Checks: all},
		{Broken: CountApart, Finds: F3, Roles: []Role{plain, plain}, Clocks: true, Fences: 2, Checks: all},
		{Broken: NoRaise, Finds: F2, Roles: []Role{plain, plain}, Fences: 2, Checks: F2},
		{Broken: RegisterShrinks, Finds: F2, Roles: []Role{plain, plain}, Fences: 2, Checks: F2},
		{Broken: RegisterDies, Finds: F2, Roles: []Role{plain, plain}, Fences: 2, Checks: F2},
		{Broken: NoMeasure, Finds: V, Roles: []Role{raiser, raiser}, Clocks: true, Fences: 2, Checks: V},
		{Broken: HalfQuorum, Finds: I1, Roles: []Role{plain, plain}, Clocks: true, Fences: 2, Checks: I1},
		{Broken: BlindRelease, Finds: I1, Roles: []Role{plain, plain, plain}, Clocks: true, Truth: true, Checks: I1},
		{Broken: BlindExtend, Finds: I1, Roles: []Role{holder, plain}, Clocks: true, Fences: 2, Checks: I1},
		{Broken: ShorterTTL, Finds: I1, Roles: []Role{keeper, plain}, Clocks: true, Truth: true, Checks: I1},
		{Broken: LateExtension, Finds: H, Roles: []Role{holder, plain}, Clocks: true, Truth: true, Checks: H},
		{Broken: ExtendKeepsFence, Finds: F2, Roles: []Role{holder, plain}, Fences: 1, Crashes: 1, Asks: AskCarriers, Checks: F2},
		{Broken: HealAlone, Finds: H, Roles: []Role{keeper, plain}, Clocks: true, Fences: 1, Crashes: 1, Crash: CrashEarly, Checks: H},
		{Broken: HealCountsAtOnce, Finds: H, Roles: []Role{holder, plain}, Clocks: true, Fences: 1, Crashes: 1, Crash: CrashEarly, Checks: H},
		{Broken: BlindAdopt, Finds: I1, Roles: []Role{plain, adopter, plain}, Clocks: true, Truth: true, Checks: I1},
		{Broken: AdoptDeletes, Finds: I1, Roles: []Role{plain, adopter, plain}, Clocks: true, Truth: true, Checks: I1},

		{Name: "at-once", Finds: I1, Doc: "a node forgets and serves at once", Roles: []Role{plain, plain}, Clocks: true, Truth: true, Crashes: 1, Checks: I1},
		{Name: "at-once-fence", Finds: F1, Doc: "the same: a token comes twice, though all clocks are right", Roles: []Role{raiser, raiser}, Clocks: true, Truth: true, Crashes: 1, Checks: F1},
		{Name: "at-once-noclocks", Finds: F2, Doc: "the same without clocks", Roles: []Role{plain, plain}, Fences: 2, Crashes: 1, Checks: F2},
		{Name: "late-set", Finds: H, Doc: "a node forgets, and a late SET of the acquire puts the lock back on another", Roles: []Role{holder, plain}, Clocks: true, Truth: true, Crashes: 1, Crash: CrashHeld, Checks: H},
		{Name: "any-majority", Finds: F2, Doc: "a majority's registers stand at every moment, but not the same one's", Roles: []Role{holder, plain}, Fences: 2, Crashes: 1, Asks: AskAnyMajority, Checks: F2},
		{Name: "adopt-early", Finds: I1, Doc: "a value is adopted before its lock was returned", Roles: []Role{plain, adopter, plain}, Clocks: true, Truth: true, Checks: I1, Early: true},
	}
}

// Title is the world's name: that of its variant where it has none of its own.
func (w *World) Title() string {
	if w.Name == "" {
		return w.Broken.String()
	}
	return w.Name
}
