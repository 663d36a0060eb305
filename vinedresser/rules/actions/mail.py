"""Telling people of a finding by mail."""

from __future__ import annotations

import json
import smtplib
import ssl
from email.message import EmailMessage
from typing import ClassVar

from vinedresser.rules.actions.base import ActionContext, ActionResult
from vinedresser.rules.actions.message import text
from vinedresser.rules.actions.retry import retry
from vinedresser.rules.actions.settings import EmailSettings

__all__ = ["EmailAction"]

# Seconds that the server has for each of its answers.
_TIMEOUT = 10.0


class EmailAction:
    """Sends a finding and the facts of its run, as text and as JSON.

    Args:
        settings: whom to tell, and by which server.
    """

    name: ClassVar[str] = "email"

    def __init__(self, settings: EmailSettings) -> None:
        self._settings = settings

    def take(self, context: ActionContext) -> ActionResult:
        """See `Action.take`."""
        message = self._message(context)
        return retry(lambda: self._send(message), self._settings.patience, context.giving_up)

    def _message(self, context: ActionContext) -> EmailMessage:
        settings, told = self._settings, context.document
        message = EmailMessage()
        message["From"] = settings.sender
        message["To"] = ", ".join(settings.to)
        # A header is one line.
        message["Subject"] = " ".join(str(told["text"]).split())[:200]
        # Who gets it twice shows it once.
        message["Message-ID"] = f"<{context.id}@vinedresser.invalid>"
        message.set_content(text(told))
        as_json = json.dumps(told, allow_nan=False, indent=1).encode()
        message.add_attachment(
            as_json, maintype="application", subtype="json", filename="finding.json"
        )
        return message

    def _send(self, message: EmailMessage) -> ActionResult:
        settings = self._settings
        where = f"{settings.host}:{settings.port}"
        try:
            with smtplib.SMTP(settings.host, settings.port, timeout=_TIMEOUT) as server:
                if settings.starttls:
                    server.starttls(context=ssl.create_default_context())
                if settings.user:
                    server.login(settings.user, settings.password())
                left_out = server.send_message(message)
        except smtplib.SMTPResponseException as error:
            # RFC 5321, section 4.2.1: with 4 it may succeed later, with 5 never.
            later = error.smtp_code < 500
            return ActionResult("failed" if later else "refused", f"{where} said {error.smtp_code}")
        except smtplib.SMTPRecipientsRefused as error:
            later = any(code < 500 for code, _ in error.recipients.values())
            return ActionResult(
                "failed" if later else "refused", f"{where} takes none for {settings.to}"
            )
        except (smtplib.SMTPNotSupportedError, ssl.SSLCertVerificationError) as error:
            return ActionResult("refused", f"{where}: {error}")
        except (OSError, smtplib.SMTPException) as error:
            return ActionResult("failed", f"{where}: {type(error).__name__}: {error}")
        if left_out:
            return ActionResult("done", f"{where} took it, but not for {', '.join(left_out)}")
        return ActionResult("done", f"{where} took it for {', '.join(settings.to)}")
