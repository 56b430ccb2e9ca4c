/* console.h - writes a line for each stage on stderr if TELEFUSER_PROFILE_DEBUG asks for it. */
#ifndef TFI_CONSOLE_H
#define TFI_CONSOLE_H

/* Called in the constructor, after the configuration was read. */
void tfi_console_constructor(void);

/* Called when the program uses a device: the work that a stage launches may run after it. */
void tfi_console_device_used(void);

#endif
