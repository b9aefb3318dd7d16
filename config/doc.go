// Package config turns one YAML file into a running set of relays. It is the one
// place that links every dialect and every transport.
//
// The file is read strictly: unknown keys, bad values, contradictions and
// duplicates are all reported at once, each with its place. `${NAME}` and
// `${file:PATH}` in values are replaced after the YAML was parsed, so that a secret
// can't change the structure, and what they were replaced by is never shown: not in
// a fault, not in a log, not by [Config.Print].
//
// A dialect joins by one file and a line in dialects, a transport by one file and a
// line in kinds.
package config
