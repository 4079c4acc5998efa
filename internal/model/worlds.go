package model

// This file lists all worlds: the sound ones, in each of which the search must visit all states and
// find nothing, and those that must be found broken (Finds), each as small as possible.

var (
	plain   = Role{}                      // acquires with its first proposal or not at all
	raiser  = Role{Raises: 1}             // may raise its token once
	twice   = Role{Raises: 2}             // may raise it twice, as the library may
	renewer = Role{Raises: 1, Extends: 1} // may raise, and extends once
	holder  = Role{Extends: 1}
	keeper  = Role{Extends: 2}
	adopter = Role{Adopts: 1} // adopts the first attempt's value

	bare        = Role{Bare: true} // wants no fence
	bareHolder  = Role{Bare: true, Extends: 1}
	bareAdopter = Role{Bare: true, Adopts: 1}
)

const (
	fences = F1 | F2
	all    = I1 | F1 | F2 | F3 | V | H
)

// Worlds returns all worlds, the sound ones first.
func Worlds() []World {
	return append(append(withoutClocks(), withClocks()...), broken()...)
}

func withoutClocks() []World {
	return []World{
		{Name: "noclocks", Doc: "two attempts, each may raise once", Roles: []Role{raiser, raiser}, Fences: 3, Checks: fences, Long: true},
		{Name: "noclocks-4", Doc: "the same with four numbers, as many as two attempts produce", Roles: []Role{raiser, raiser}, Fences: 4, Checks: fences, Long: true},
		{Name: "noclocks-registers", Doc: "registers start at any numbers up to 2", Roles: []Role{raiser, raiser}, Fences: 4, Regs: 2, Checks: fences, Long: true},
		{Name: "noclocks-twice", Doc: "two attempts, each may raise twice", Roles: []Role{twice, twice}, Fences: 4, Checks: fences, Long: true},
		{Name: "noclocks-three", Doc: "three attempts that propose the same", Roles: []Role{plain, plain, plain}, Fences: 1, Checks: fences, Long: true},
		{Name: "noclocks-extend", Doc: "one attempt extends and heals, the other acquires", Roles: []Role{holder, plain}, Fences: 2, Checks: fences, Long: true},
		{Name: "noclocks-raise-extend", Doc: "the same, and both may raise", Roles: []Role{renewer, raiser}, Fences: 3, Checks: fences, Long: true},
		{Name: "again", Doc: "two attempts whose acquires are executed any number of times", Roles: []Role{raiser, raiser}, Again: true, Fences: 3, Checks: fences, Long: true},
		{Name: "unfenced", Doc: "an attempt without a fence between two that have one", Roles: []Role{plain, bare, plain}, Fences: 2, Checks: fences, Long: true},
		{Name: "ill", Doc: "a register gets a number above all others at any time, and is mended", Roles: []Role{plain, plain}, Fences: 2, Ill: true, Checks: fences},
		{Name: "ill-raise", Doc: "the same, and the second may raise", Roles: []Role{plain, raiser}, Fences: 3, Ill: true, Checks: fences, Long: true},
		{Name: "ill-extend", Doc: "the same, and the first extends and heals", Roles: []Role{holder, plain}, Fences: 2, Ill: true, Checks: fences, Long: true},
		{Name: "forgetting", Doc: "a node loses its memory; F2 where the same majority keeps its registers", Roles: []Role{plain, plain}, Fences: 2, Crashes: 1, Asks: AskSameMajority, Checks: F2},
		{Name: "forgetting-raise", Doc: "the same, and the second may raise", Roles: []Role{plain, raiser}, Fences: 3, Crashes: 1, Asks: AskSameMajority, Checks: F2, Long: true},
		{Name: "rolling", Doc: "a node loses its memory; an extension has restored its register", Roles: []Role{holder, plain}, Fences: 1, Crashes: 1, Asks: AskCarriers, Checks: F2, Long: true},
		{Name: "rolling-2", Doc: "the same with two nodes", Roles: []Role{holder, plain}, Fences: 2, Crashes: 2, Asks: AskCarriers, Checks: F2, Long: true},
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
		{Name: "duel", Doc: "raise, extend, heal, against an attempt that raises", Roles: []Role{renewer, raiser}, Clocks: true, Fences: 4, Checks: all, Long: true},
		{Name: "restarts", Doc: "chain; a node restarts empty while a majority stores the lock", Roles: []Role{keeper, plain}, Clocks: true, Fences: 1, Crashes: 1, Crash: CrashMajorityStays, Checks: I1 | H | V, Long: true},
		{Name: "restarts-3", Doc: "the same with every node, one after another", Roles: []Role{keeper, plain}, Clocks: true, Fences: 1, Crashes: 3, Crash: CrashMajorityStays, Checks: I1 | H | V, Long: true},
		{Name: "amnesia", Doc: "a node loses the lock before its first extension", Roles: []Role{keeper, plain}, Clocks: true, Fences: 1, Crashes: 1, Crash: CrashEarly, Checks: H, Long: true},
		{Name: "amnesia-2", Doc: "the same with two nodes", Roles: []Role{keeper, plain}, Clocks: true, Fences: 1, Crashes: 2, Crash: CrashEarly, Checks: H, Long: true},
		{Name: "away", Doc: "a node loses its memory and stays away for the ttl", Roles: []Role{raiser, raiser}, Clocks: true, Truth: true, Crashes: 1, Away: true, Checks: all, Long: true},
		{Name: "away-2", Doc: "the same with two nodes", Roles: []Role{raiser, raiser}, Clocks: true, Truth: true, Crashes: 2, Away: true, Checks: all, Long: true},
		{Name: "away-three", Doc: "three attempts; a node loses its memory and stays away", Roles: []Role{plain, plain, plain}, Clocks: true, Truth: true, Crashes: 1, Away: true, Checks: all, Long: true},
		{Name: "away-extend", Doc: "the same with two nodes, during an extension with heal", Roles: []Role{renewer, plain}, Clocks: true, Truth: true, Crashes: 2, Away: true, Checks: all, Long: true},
		{Name: "timing-unfenced", Doc: "an attempt without a fence, against one that raises", Roles: []Role{bare, raiser}, Clocks: true, Fences: 3, Checks: all},
		{Name: "chain-unfenced", Doc: "an attempt without a fence extends, with heals, between two that have one", Roles: []Role{bareHolder, plain, plain}, Clocks: true, Fences: 2, Checks: all, Long: true},
		{Name: "adopt-unfenced", Doc: "a lock with a fence is adopted without one, and a third attempt acquires with one", Roles: []Role{plain, bareAdopter, plain}, Clocks: true, Fences: 2, Checks: all, Long: true},
		{Name: "adopt-fenced", Doc: "a lock without a fence is adopted with one, and a third attempt acquires", Roles: []Role{bare, adopter, plain}, Clocks: true, Fences: 2, Checks: all},
		{Name: "adopt-two", Doc: "two attempts adopt at once", Roles: []Role{plain, adopter, adopter}, Clocks: true, Fences: 3, Checks: all, Long: true},
		{Name: "adopt", Doc: "an adoption, the giver's extension, and a third attempt that acquires", Roles: []Role{holder, adopter, plain}, Clocks: true, Fences: 2, Checks: all, Long: true},
		{Name: "adopt-raise", Doc: "an adoption that raises, and a third attempt that acquires", Roles: []Role{plain, {Adopts: 1, Raises: 1}, plain}, Clocks: true, Fences: 3, Checks: all, Long: true},
	}
}

// broken returns the worlds that must break: in all but the last group a rule is removed, in the last
// group an assumption.
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
		{Broken: BlindRelease, Finds: I1, Roles: []Role{plain, plain, plain}, Clocks: true, Truth: true, Checks: I1, Long: true},
		{Broken: BlindExtend, Finds: I1, Roles: []Role{holder, plain}, Clocks: true, Fences: 2, Checks: I1},
		{Broken: ShorterTTL, Finds: I1, Roles: []Role{keeper, plain}, Clocks: true, Truth: true, Checks: I1},
		{Broken: LateExtension, Finds: H, Roles: []Role{holder, plain}, Clocks: true, Truth: true, Checks: H},
		{Broken: ExtendKeepsFence, Finds: F2, Roles: []Role{holder, plain}, Fences: 1, Crashes: 1, Asks: AskCarriers, Checks: F2},
		{Broken: HealAlone, Finds: H, Roles: []Role{keeper, plain}, Clocks: true, Fences: 1, Crashes: 1, Crash: CrashEarly, Checks: H, Long: true},
		{Broken: HealCountsAtOnce, Finds: H, Roles: []Role{holder, plain}, Clocks: true, Fences: 1, Crashes: 1, Crash: CrashEarly, Checks: H},
		{Broken: IllCounts, Finds: F2, Roles: []Role{plain, plain}, Fences: 2, Ill: true, Checks: F2},
		{Broken: MendByFew, Finds: F2, Roles: []Role{plain, plain}, Fences: 2, Ill: true, Checks: F2},
		{Broken: MendAtOnce, Finds: F2, Roles: []Role{plain, plain}, Fences: 2, Ill: true, Checks: F2},
		{Broken: Unregistered, Finds: F2, Roles: []Role{bare, plain}, Fences: 2, Checks: F2},
		{Broken: BlindAdopt, Finds: I1, Roles: []Role{plain, adopter, plain}, Clocks: true, Truth: true, Checks: I1},
		{Broken: AdoptDeletes, Finds: I1, Roles: []Role{plain, adopter, plain}, Clocks: true, Truth: true, Checks: I1},

		{Name: "at-once", Finds: I1, Doc: "a node loses its memory and serves at once", Roles: []Role{plain, plain}, Clocks: true, Truth: true, Crashes: 1, Checks: I1},
		{Name: "at-once-fence", Finds: F1, Doc: "the same: a token is returned twice, although all clocks are right", Roles: []Role{raiser, raiser}, Clocks: true, Truth: true, Crashes: 1, Checks: F1},
		{Name: "at-once-noclocks", Finds: F2, Doc: "the same without clocks", Roles: []Role{plain, plain}, Fences: 2, Crashes: 1, Checks: F2},
		{Name: "late-set", Finds: H, Doc: "a node loses its memory, and a late SET of the acquire stores the lock on another", Roles: []Role{holder, plain}, Clocks: true, Truth: true, Crashes: 1, Crash: CrashHeld, Checks: H},
		{Name: "any-majority", Finds: F2, Doc: "at every moment a majority keeps its registers, but not always the same one", Roles: []Role{holder, plain}, Fences: 2, Crashes: 1, Asks: AskAnyMajority, Checks: F2},
		{Name: "adopt-early", Finds: I1, Doc: "a value is adopted before its lock was returned", Roles: []Role{plain, adopter, plain}, Clocks: true, Truth: true, Checks: I1, Early: true, Long: true},
	}
}

// Title returns the world's name, or that of its variant if it has none.
func (w *World) Title() string {
	if w.Name == "" {
		return w.Broken.String()
	}
	return w.Name
}
