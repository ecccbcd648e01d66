//go:build !purego

#include "textflag.h"

// What takes the two halves of 16 bytes d bits on: x^(d+32) mod P for the low half and x^(d-32) mod P for the high one,
// bits reversed and shifted by one, as the reversed order of bits in a CRC wants them. TestConstantsOfTheChecksum derives them.
DATA far<>+0(SB)/8, $0x0dcb17aa4 // 2048 bits: over four registers
DATA far<>+8(SB)/8, $0x0b9e02b86
GLOBL far<>(SB), RODATA|NOPTR, $16

DATA near<>+0(SB)/8, $0x0740eef02 // 512 bits: over one
DATA near<>+8(SB)/8, $0x09e4addf8
GLOBL near<>(SB), RODATA|NOPTR, $16

DATA lanes<>+0(SB)/8, $0x01c291d04 // 384, 256 and 128 bits: onto the last 16 bytes of a register
DATA lanes<>+8(SB)/8, $0x1d82c63da
DATA lanes<>+16(SB)/8, $0x1384aa63a
DATA lanes<>+24(SB)/8, $0x0ba4fc28e
DATA lanes<>+32(SB)/8, $0x0f20c0dfe
DATA lanes<>+40(SB)/8, $0x14cd00bd6
DATA lanes<>+48(SB)/8, $0
DATA lanes<>+56(SB)/8, $0
GLOBL lanes<>(SB), RODATA|NOPTR, $64

// FOLD replaces z by itself taken on by the constants in k, plus what is at from. t is lost.
#define FOLD(k, z, t, from) \
	VPCLMULQDQ $0x11, k, z, t; \
	VPCLMULQDQ $0x00, k, z, z; \
	VPTERNLOGQ $0x96, from, t, z

// func fold(state uint32, p []byte) uint32
TEXT ·fold(SB), NOSPLIT, $0-36
	MOVQ p_base+8(FP), SI
	MOVQ p_len+16(FP), CX // at least 256
	MOVL state+0(FP), AX

	// Loads that lie in two cache lines each make up for the way to the first line, if there are enough of them.
	CMPQ CX, $4096
	JB   start
	MOVQ SI, DX
	NEGQ DX
	ANDQ $63, DX
	SUBQ DX, CX

headwords:
	CMPQ   DX, $8
	JB     headbytes
	CRC32Q (SI), AX
	ADDQ   $8, SI
	SUBQ   $8, DX
	JMP    headwords

headbytes:
	TESTQ  DX, DX
	JZ     start
	CRC32B (SI), AX
	INCQ   SI
	DECQ   DX
	JMP    headbytes

start:
	VMOVD     AX, X4 // the rest of Z4 is zero
	VPXORQ    (SI), Z4, Z0
	VMOVDQU64 64(SI), Z1
	VMOVDQU64 128(SI), Z2
	VMOVDQU64 192(SI), Z3
	ADDQ      $256, SI
	SUBQ      $256, CX

	VBROADCASTI32X4 far<>(SB), Z8
	VBROADCASTI32X4 near<>(SB), Z9
	CMPQ            CX, $256
	JB              join

	PCALIGN $32
wide:
	FOLD(Z8, Z0, Z4, (SI))
	FOLD(Z8, Z1, Z5, 64(SI))
	FOLD(Z8, Z2, Z6, 128(SI))
	FOLD(Z8, Z3, Z7, 192(SI))
	ADDQ $256, SI
	SUBQ $256, CX
	CMPQ CX, $256
	JAE  wide

join:
	FOLD(Z9, Z0, Z4, Z1)
	FOLD(Z9, Z0, Z4, Z2)
	FOLD(Z9, Z0, Z4, Z3)
	CMPQ CX, $64
	JB   narrow

single:
	FOLD(Z9, Z0, Z4, (SI))
	ADDQ $64, SI
	SUBQ $64, CX
	CMPQ CX, $64
	JAE  single

narrow:
	VMOVDQU64     lanes<>(SB), Z8
	VEXTRACTI32X4 $3, Z0, X5
	VPCLMULQDQ    $0x11, Z8, Z0, Z4
	VPCLMULQDQ    $0x00, Z8, Z0, Z0
	VPXORQ        Z4, Z0, Z0
	VEXTRACTI64X4 $1, Z0, Y4
	VPXOR         Y4, Y0, Y0
	VEXTRACTI128  $1, Y0, X4
	VPXOR         X4, X0, X0
	VPXOR         X5, X0, X0
	VMOVQ         X0, R8
	VPEXTRQ       $1, X0, R9
	VZEROUPPER

	// These 16 bytes stand for all that was before.
	XORL   AX, AX
	CRC32Q R8, AX
	CRC32Q R9, AX

words:
	CMPQ   CX, $8
	JB     bytes
	CRC32Q (SI), AX
	ADDQ   $8, SI
	SUBQ   $8, CX
	JMP    words

bytes:
	TESTQ  CX, CX
	JZ     done
	CRC32B (SI), AX
	INCQ   SI
	DECQ   CX
	JMP    bytes

done:
	MOVL AX, ret+32(FP)
	RET
