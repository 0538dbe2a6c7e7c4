/* A kernel may start while the one before it ends: it waits for that before it reads what a kernel of the plan wrote, and only then lets
   the next one start. So all before the one before have ended when it starts, and every block waits, for the next kernel waits for
   this one alone. */
#if __CUDA_ARCH__ >= 900
FN void await() {
    asm volatile("griddepcontrol.wait;" ::: "memory");
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}
#else
FN void await() {}
#endif
