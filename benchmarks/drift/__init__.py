"""False alarms and delays of drift monitors."""
