package main

import (
	"strings"
	"unicode/utf8"
)

// javaText is what Java makes of bytes that should be UTF-8: each longest piece that could have begun a character becomes one
// U+FFFD, where Go has one for each byte.
func javaText(b []byte) string {
	if utf8.Valid(b) {
		return string(b)
	}
	var out strings.Builder
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		if r == utf8.RuneError && n == 1 {
			n = malformed(b)
		}
		out.WriteRune(r)
		b = b[n:]
	}
	return out.String()
}

// malformed is how many bytes, of those at the start of b that are no character, Java replaces together.
func malformed(b []byte) int {
	at := func(i int) byte {
		if i < len(b) {
			return b[i]
		}
		return 0
	}
	follows := func(i int) bool { return at(i)&0xc0 == 0x80 }
	first, second := b[0], at(1)
	switch {
	case first >= 0xe0 && first <= 0xef:
		switch {
		case !follows(1) || first == 0xe0 && second&0xe0 == 0x80:
			return 1
		case !follows(2):
			return 2
		}
		return 3 // half of a surrogate pair
	case first >= 0xf0 && first <= 0xf4:
		switch {
		case !follows(1) || first == 0xf0 && second < 0x90 || first == 0xf4 && second&0xf0 != 0x80:
			return 1
		case !follows(2):
			return 2
		}
		return 3
	}
	return 1
}
