.intel_syntax noprefix
.globl _start
_start:
    sub rsp, 4096
    lea rdi, [rip + dev]
    call open
1:  mov edi, ebp
    mov rsi, rsp
    mov edx, 4096
    mov eax, 217
    syscall
    call put
    jg 1b
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
env: .asciz "/proc/self/environ"
