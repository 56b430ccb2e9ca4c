/* devices.h - says how busy and how full the devices of a process are within a set of times. */
#ifndef TFA_ASK_STEP_DEVICES_H
#define TFA_ASK_STEP_DEVICES_H

#include "ask/choice.h"
#include "ask/steps/step_parts.h"

/* Adds a struct step_device for each device that ran a chosen kernel. `times` is merged. */
void step_devices(struct steps *steps, const struct choice *choice, const struct names *names,
                  const struct intervals *times);

#endif
