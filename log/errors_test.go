package log

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDamageIsToldWithoutWhatIsUnknown(t *testing.T) {
	why := errors.New("why")
	for want, e := range map[string]CorruptError{
		"log: f is damaged at byte 7 (offset 3; readable again from offset 9): why":  {Position: 7, Offset: 3, Intact: [2]int64{3, 9}},
		"log: f is damaged at byte 0 (offset 0; nothing is readable behind it): why": {Intact: [2]int64{0, -1}},
		"log: f is damaged (offset 3; readable again from offset 9): why":            {Position: -1, Offset: 3, Intact: [2]int64{3, 9}},
		"log: f is damaged at byte 7: why":                                           {Position: 7, Offset: -1, Intact: [2]int64{-1, -1}},
		"log: f is damaged: why":                                                     {Position: -1, Offset: -1, Intact: [2]int64{-1, -1}},
	} {
		e.File, e.Err = "f", why
		require.EqualError(t, &e, want)
	}
}
