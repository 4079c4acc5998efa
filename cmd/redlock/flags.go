package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// A usageError is a mistake in the arguments or in the environment. hint says what to do
// instead, where the text does not.
type usageError struct{ text, hint string }

func (e *usageError) Error() string { return e.text }

func mistake(format string, args ...any) *usageError {
	return &usageError{text: fmt.Sprintf(format, args...)}
}

// withHint returns the error with a hint.
func (e *usageError) withHint(format string, args ...any) *usageError {
	e.hint = fmt.Sprintf(format, args...)
	return e
}

// A flagSet is the flags of one subcommand. Each can also be set by an environment variable,
// and the help and the errors are made from the same definitions.
type flagSet struct {
	*pflag.FlagSet
	prefix    string            // of the variables
	variables map[string]string // of the flags whose variable is not named after them
	source    map[string]string // of the flags that were set by a variable: its name
	given     map[string]bool   // what was given on the command line: flags, and arguments in their place
	excluded  [][2]string       // pairs of flags that contradict each other
}

func newFlags(command, prefix string) *flagSet {
	f := &flagSet{
		FlagSet:   pflag.NewFlagSet(command, pflag.ContinueOnError),
		prefix:    prefix,
		variables: make(map[string]string),
		source:    make(map[string]string),
		given:     make(map[string]bool),
	}
	f.SortFlags = false // the help has them in the order of their definitions
	f.SetOutput(io.Discard)
	f.Usage = func() {}
	f.BoolP("help", "h", false, "show this help")
	return f
}

// A durationValue is a flag's duration of at least 0.
type durationValue time.Duration

func (d *durationValue) Set(text string) error {
	parsed, err := time.ParseDuration(text)
	if err != nil || parsed < 0 {
		return errors.New("want a duration of 0 or more with a unit, such as 10s or 500ms")
	}
	*d = durationValue(parsed)
	return nil
}

func (d *durationValue) String() string {
	if *d == 0 {
		return ""
	}
	return time.Duration(*d).String()
}

func (d *durationValue) Type() string { return "duration" }

func (f *flagSet) durationVar(d *time.Duration, name, short string, value time.Duration, usage string) {
	*d = value
	f.VarP((*durationValue)(d), name, short, usage)
}

// An intValue is a flag's number between two others.
type intValue struct {
	n        *int
	min, max int
}

func (v intValue) Set(text string) error {
	n, err := strconv.Atoi(text)
	if err != nil || n < v.min || n > v.max {
		return fmt.Errorf("want a number from %d to %d", v.min, v.max)
	}
	*v.n = n
	return nil
}

func (v intValue) String() string {
	if *v.n < v.min {
		return ""
	}
	return strconv.Itoa(*v.n)
}

func (v intValue) Type() string { return "number" }

func (f *flagSet) intVar(n *int, name, short string, value, min, max int, usage string) {
	*n = value
	f.VarP(intValue{n, min, max}, name, short, usage)
}

// exclude makes the flags refuse each other, two by two.
func (f *flagSet) exclude(names ...string) {
	for i, a := range names {
		for _, b := range names[:i] {
			f.excluded = append(f.excluded, [2]string{b, a})
		}
	}
}

// variable returns the environment variable that sets the flag.
func (f *flagSet) variable(name string) string {
	if v, ok := f.variables[name]; ok {
		return v
	}
	return f.prefix + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
}

// nameOf returns the name under which the user has set the flag.
func (f *flagSet) nameOf(name string) string {
	if v, ok := f.source[name]; ok {
		return v
	}
	return "--" + name
}

// parse parses the command line up to a --. Flags may precede or follow arguments.
func (f *flagSet) parse(args []string) error {
	for _, a := range args {
		name, single := strings.CutPrefix(a, "-")
		name, _, _ = strings.Cut(name, "=")
		// A value that looks like this has to be written as --label=-try.
		if single && len(name) > 1 && f.Lookup(name) != nil {
			return mistake("unknown flag -%s", name).withHint("long flags have two dashes: --%s", name)
		}
		if single && strings.HasPrefix(name, "test.") { // package pflag would ignore it
			return mistake("unknown flag -%s", name)
		}
	}
	if err := f.Parse(args); err != nil {
		return f.explain(err)
	}
	if help, _ := f.GetBool("help"); help {
		return pflag.ErrHelp
	}
	f.Visit(func(flag *pflag.Flag) { f.given[flag.Name] = true })
	return nil
}

// environment sets the flags that have a variable and were not given. What the command line
// contradicts is not set, so that a variable is a default and never in the way.
func (f *flagSet) environment(lookup func(string) string) (err error) {
	f.VisitAll(func(flag *pflag.Flag) {
		name := flag.Name
		text := lookup(f.variable(name))
		if err != nil || text == "" || name == "help" || f.given[name] || f.isExcluded(name) {
			return
		}
		f.source[name] = f.variable(name)
		if list, ok := flag.Value.(pflag.SliceValue); ok {
			if err = list.Replace(splitList(text)); err == nil {
				flag.Changed = true
			}
			return
		}
		err = f.explain(f.Set(name, text))
	})
	return err
}

// isExcluded reports whether something on the command line contradicts the flag.
func (f *flagSet) isExcluded(name string) bool {
	return slices.ContainsFunc(f.excluded, func(pair [2]string) bool {
		return pair[0] == name && f.given[pair[1]] && f.isSet(pair[1]) ||
			pair[1] == name && f.given[pair[0]] && f.isSet(pair[0])
	})
}

// isSet reports whether the flag was set at all, other than a switch to false.
func (f *flagSet) isSet(name string) bool {
	flag := f.Lookup(name)
	return flag.Changed && !(flag.Value.Type() == "bool" && flag.Value.String() == "false")
}

// contradiction returns an error if two flags are set that exclude each other.
func (f *flagSet) contradiction() error {
	for _, pair := range f.excluded {
		if f.isSet(pair[0]) && f.isSet(pair[1]) {
			return mistake("%s and %s contradict each other", f.nameOf(pair[0]), f.nameOf(pair[1])).withHint("use only one of them")
		}
	}
	return nil
}

// explain turns an error of package pflag into one that names the value and what would be
// right. The value of an unknown flag is not shown: it may be a password.
func (f *flagSet) explain(err error) error {
	var (
		invalid *pflag.InvalidValueError
		missing *pflag.ValueRequiredError
		unknown *pflag.NotExistError
	)
	switch {
	case err == nil || errors.Is(err, pflag.ErrHelp):
		return err
	case errors.As(err, &invalid):
		want := invalid.Unwrap()
		if invalid.GetFlag().Value.Type() == "bool" {
			want = errors.New("want true or false")
		}
		return mistake("%s %s: %v", f.nameOf(invalid.GetFlag().Name), shown(invalid.GetValue()), want)
	case errors.As(err, &missing):
		placeholder, _ := usageOf(missing.GetFlag())
		return mistake("--%s needs a value: --%[1]s %s", missing.GetFlag().Name, placeholder)
	case errors.As(err, &unknown):
		if unknown.GetSpecifiedShortnames() != "" {
			return mistake("unknown flag -%s", unknown.GetSpecifiedName()).withHint("redlock help %s lists the flags", f.Name())
		}
		e := mistake("unknown flag --%s", unknown.GetSpecifiedName())
		if near := f.near(unknown.GetSpecifiedName()); near != "" {
			return e.withHint("did you mean --%s?", near)
		}
		return e.withHint("redlock help %s lists the flags", f.Name())
	}
	return &usageError{text: err.Error()}
}

// near returns the only flag that begins with the name, or with which the name begins, or "".
func (f *flagSet) near(name string) (near string) {
	found := 0
	f.VisitAll(func(flag *pflag.Flag) {
		if strings.HasPrefix(flag.Name, name) || strings.HasPrefix(name, flag.Name) {
			near = flag.Name
			found++
		}
	})
	if found != 1 {
		return ""
	}
	return near
}

// shown returns a text of the user in quotes, without a password that it may have.
func shown(text string) string {
	if scheme, _, ok := strings.Cut(text, "://"); ok && strings.Contains(text, "@") {
		text = scheme + "://***"
	}
	return strconv.Quote(text)
}

// splitList returns the elements of a list that commas or line ends separate.
func splitList(text string) (elements []string) {
	for e := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == ',' || r == '\n' }) {
		if e = strings.TrimSpace(e); e != "" {
			elements = append(elements, e)
		}
	}
	return elements
}

const (
	helpColumn = 30 // of the descriptions of flags
	helpWidth  = 92
)

// usageOf returns the placeholder for a flag's value and the description, which a flag's usage
// has as "`DUR` how long to wait".
func usageOf(flag *pflag.Flag) (placeholder, text string) {
	placeholder, text = pflag.UnquoteUsage(flag)
	return placeholder, strings.TrimPrefix(text, placeholder+" ")
}

// help returns the descriptions of the flags.
func (f *flagSet) help() string {
	var b strings.Builder
	f.VisitAll(func(flag *pflag.Flag) {
		head := "      --" + flag.Name
		if flag.Shorthand != "" {
			head = "  -" + flag.Shorthand + ", --" + flag.Name
		}
		placeholder, text := usageOf(flag)
		var notes []string
		if flag.Value.Type() != "bool" {
			head += " " + placeholder
			if flag.DefValue != "" && flag.DefValue != "[]" {
				notes = append(notes, "default "+flag.DefValue)
			}
		}
		if flag.Name != "help" {
			notes = append(notes, "$"+f.variable(flag.Name))
			if before, ok := strings.CutSuffix(text, ")"); ok { // it ends with a default
				text = before + "; "
			} else {
				text += " ("
			}
			text += strings.Join(notes, "; ") + ")"
		}
		if len(head) >= helpColumn-1 {
			fmt.Fprintln(&b, head)
			head = ""
		}
		line := fmt.Sprintf("%-*s", helpColumn, head)
		for i, word := range strings.Fields(text) {
			switch {
			case i == 0:
			case len(line)+1+len(word) > helpWidth:
				fmt.Fprintln(&b, line)
				line = strings.Repeat(" ", helpColumn)
			default:
				line += " "
			}
			line += word
		}
		fmt.Fprintln(&b, line)
	})
	return b.String()
}

// badUsage reports an error of parsing a command line and returns the exit status. A
// request for help is not an error: it prints the help and returns 0.
func badUsage(err error, command, help string) int {
	if errors.Is(err, pflag.ErrHelp) {
		fmt.Print(help)
		return 0
	}
	if command != "" {
		command += ": "
	}
	complain("%s%v", command, err)
	var e *usageError
	if errors.As(err, &e) && e.hint != "" {
		fmt.Fprintf(os.Stderr, "hint: %s\n", e.hint)
	}
	return exitUsage
}
