.intel_syntax noprefix
.globl _start
_start:
    sub rsp, 4096
    lea rdi, [rip + dev]
    call list
    lea rdi, [rip + dri]
    call list
    lea rdi, [rip + env]
    call open
2:  mov edi, ebp
    mov rsi, rsp
    mov edx, 4096
    xor eax, eax
    syscall
    call put
    jg 2b
    xor edi, edi
    mov eax, 60
    syscall
list:
    call open
1:  mov edi, ebp
    lea rsi, [rsp + 8]
    mov edx, 4088
    mov eax, 217
    syscall
    call put
    jg 1b
    ret
open:
    xor esi, esi
    xor edx, edx
    mov eax, 2
    syscall
    mov ebp, eax
    ret
put:
    mov r12d, eax
    mov edx, eax
    test eax, eax
    jle 3f
    mov edi, 1
    mov eax, 1
    syscall
3:  test r12d, r12d
    ret
dev: .asciz "/dev"
dri: .asciz "/dev/dri"
env: .asciz "/proc/self/environ"
