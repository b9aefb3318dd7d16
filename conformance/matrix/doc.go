// Package matrix tests every dialect with every transport on real servers, and the
// files that bring those servers up. It is a module of its own and is never tagged:
// what it needs, nobody who uses Outward downloads.
package matrix
