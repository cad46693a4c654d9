.globl _start
_start:
    sub sp, sp, 4096
    adr x1, dev
    bl list
    adr x1, dri
    bl list
    adr x1, env
    bl open
2:  mov w0, w19
    add x1, sp, 0
    mov x2, 4096
    mov x8, 63
    svc 0
    bl put
    b.gt 2b
    mov x0, 0
    mov x8, 93
    svc 0
list:
    mov x21, x30
    bl open
1:  mov w0, w19
    add x1, sp, 0
    mov x2, 4096
    mov x8, 61
    svc 0
    bl put
    b.gt 1b
    mov x30, x21
    ret
open:
    mov x0, -100
    mov x2, 0
    mov x3, 0
    mov x8, 56
    svc 0
    mov w19, w0
    ret
put:
    mov w20, w0
    cmp w0, 0
    b.le 3f
    sxtw x2, w0
    mov x0, 1
    mov x8, 64
    svc 0
3:  cmp w20, 0
    ret
dev: .asciz "/dev"
dri: .asciz "/dev/dri"
env: .asciz "/proc/self/environ"
