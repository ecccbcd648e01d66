module github.com/partlog/partlog/interop

go 1.26.0

require (
	github.com/partlog/partlog v0.0.0
	github.com/stretchr/testify v1.12.1
)

require (
	github.com/edsrzf/mmap-go v1.2.0 // indirect
	github.com/klauspost/compress v1.20.4 // indirect
	github.com/pierrec/lz4/v4 v4.1.33 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/sys v0.50.0 // indirect
)

replace github.com/partlog/partlog => ../
