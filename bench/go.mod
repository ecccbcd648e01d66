module github.com/partlog/partlog/bench

go 1.26.0

require (
	github.com/klauspost/compress v1.20.4
	github.com/partlog/partlog v0.0.0
	github.com/pierrec/lz4/v4 v4.1.33
)

require (
	github.com/edsrzf/mmap-go v1.2.0 // indirect
	golang.org/x/sys v0.50.0 // indirect
)

replace github.com/partlog/partlog => ../
